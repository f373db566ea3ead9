"""Names in spans: OpenTelemetry's conventions for generative AI, and what vLLM and Langfuse add.

No other file spells one.

The conventions are in development and move (github.com/open-telemetry/semantic-conventions-genai). Names that they have
left behind (``gen_ai.system``, ``gen_ai.prompt``, ``gen_ai.usage.prompt_tokens``…) are not used. Those that all
instrumentations share are constants here; where the newest text differs from what OpenTelemetry's own library for
instrumentations emits (opentelemetry-util-genai 1.3b0), a `Convention` chooses.
"""

from dataclasses import dataclass
from typing import Final

from freehold.config import ConventionName

PROVIDER: Final = "freehold"
OPERATIONS: Final = {"chat": "chat", "completions": "text_completion", "messages": "chat"}
"""``gen_ai.operation.name`` by endpoint."""

# What is asked for.
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"

# What is answered.
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
FINISH_ERROR: Final = "error"
"""Stands for the finish reason of an answer that has none."""

# What is said. Only if the owner has asked for it.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"

# What vLLM adds; seconds.
REQUEST_ID: Final = "gen_ai.request.id"
LATENCY_QUEUE: Final = "gen_ai.latency.time_in_queue"
LATENCY_FIRST_TOKEN: Final = "gen_ai.latency.time_to_first_token"
LATENCY_E2E: Final = "gen_ai.latency.e2e"
LATENCY_PREFILL: Final = "gen_ai.latency.time_in_model_prefill"
LATENCY_DECODE: Final = "gen_ai.latency.time_in_model_decode"

# Of all servers, and of all telemetry.
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
USER_ID: Final = "user.id"
SESSION_ID: Final = "session.id"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
ENVIRONMENT: Final = "deployment.environment.name"

# What Langfuse reads; it goes before the names above.
LANGFUSE_TYPE: Final = "langfuse.observation.type"
LANGFUSE_LEVEL: Final = "langfuse.observation.level"
LANGFUSE_STATUS: Final = "langfuse.observation.status_message"
LANGFUSE_MODEL: Final = "langfuse.observation.model.name"
LANGFUSE_PARAMETERS: Final = "langfuse.observation.model.parameters"
LANGFUSE_USAGE: Final = "langfuse.observation.usage_details"
LANGFUSE_COMPLETION_START: Final = "langfuse.observation.completion_start_time"
LANGFUSE_INPUT: Final = "langfuse.observation.input"
LANGFUSE_OUTPUT: Final = "langfuse.observation.output"
LANGFUSE_TAGS: Final = "langfuse.trace.tags"

# Ours.
STAGES: Final = ("queue", "prefill", "decode")
TOKENIZE: Final = "tokenize"
COMPILE: Final = "compile"
ANSWER_INDEX: Final = "freehold.answer.index"
NUM_PREEMPTIONS: Final = "freehold.num_preemptions"
NUM_TOOL_CALLS: Final = "freehold.num_tool_calls"
KEY_ID: Final = "freehold.key.id"
SERVICE_CLASS: Final = "freehold.service_class"
CONTENT_OMITTED: Final = "freehold.content_omitted"


@dataclass(frozen=True, slots=True)
class Convention:
    """Where conventions differ.

    Attributes:
        structured_content: messages and tools are lists of maps; else the JSON of those as text, which is what backends
            of today read.
    """

    structured_content: bool


CONVENTIONS: Final[dict[ConventionName, Convention]] = {
    "released": Convention(structured_content=False),
    "latest": Convention(structured_content=True),
}
