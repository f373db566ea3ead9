"""``freehold bench``. One long function: a command's options are its arguments, and it only puts each in its place."""

import secrets
from dataclasses import replace
from pathlib import Path

import click

from freehold.cli.bench_flags import FLAGS, BenchCommand
from freehold.cli.remote_server import local_url


@click.command(cls=BenchCommand, params=[*FLAGS])
def bench(
    base_url: str | None,
    backend: str,
    endpoint: str | None,
    model: str | None,
    tokenizer: str | None,
    dataset_name: str,
    dataset_path: Path | None,
    random_input_len: int,
    random_output_len: int,
    random_range_ratio: float,
    output_len: int | None,
    max_turns: int,
    verbatim: bool,
    prefix_len: int,
    suffix_len: int,
    num_prefixes: int,
    num_turns: int,
    opening_len: int,
    pause: float,
    published: str,
    length_scale: float,
    timed_trace_columns: tuple[str, ...],
    timed_trace_chunk_hash_size: int,
    timed_trace_sec_multiplier: float,
    trace_length_scale: float | None,
    trace_speed: float,
    num_prompts: int | None,
    max_concurrency: str | None,
    request_rate: str | None,
    burstiness: float,
    ramp_up_strategy: str | None,
    ramp_up_start_rps: float | None,
    ramp_up_end_rps: float | None,
    trace_times: bool,
    detect_saturation: bool,
    repeats: int,
    num_warmups: int,
    seed: int | None,
    warm_cache: bool,
    ignore_eos: bool,
    temperature: float | None,
    extra_body: str | None,
    header: tuple[str, ...],
    stream: bool,
    insecure: bool,
    request_timeout: float,
    metrics_path: str,
    goodput: tuple[str, ...],
    percentile_metrics: str,
    metric_percentiles: str,
    save_result: bool,
    save_detailed: bool,
    result_dir: Path,
    result_filename: str | None,
    resume: Path | None,
    label: str | None,
    metadata: tuple[str, ...],
    report: Path | None,
    write_trace: Path | None,
    show: Path | None,
    compare: tuple[Path, Path] | None,
    quiet: bool,
) -> None:
    """Measure an OpenAI-compatible server under load: latencies, throughput, goodput, and what limits it."""
    from freehold.cli.bench_paths import writable
    from freehold.cli.bench_run import Files, Shown, execute, files_of
    from freehold.cli.bench_saved import show as show_saved
    from freehold.cli.bench_saved import show_comparison
    from freehold.cli.bench_trace import save_trace
    from freehold.cli.bench_values import (
        at_least,
        read_backend,
        read_metrics,
        read_object,
        read_pairs,
        read_percents,
    )
    from freehold.loadtest.goodput import read_limits
    from freehold.loadtest.loads import LoadFlags, read_loads
    from freehold.loadtest.options import ENDPOINTS, BenchOptions, DatasetOptions

    is_saved = save_result or save_detailed
    figures = Shown(read_metrics(percentile_metrics), read_percents(metric_percentiles), is_quiet=quiet)
    if report is not None:
        writable("--report", report)
    if compare is not None:
        show_comparison(*compare, report)
        return
    if show is not None:
        show_saved(show, report, figures)
        return
    if resume is not None:
        execute(None, Files(resume, resume.with_suffix(".json"), save_detailed, report), figures, header)
        return
    chosen = read_backend(backend)
    fields = read_object(extra_body) | ({} if temperature is None else {"temperature": temperature})
    options = BenchOptions(
        base_url=base_url or local_url(),
        backend=chosen,
        endpoint=endpoint or ENDPOINTS[chosen],
        model=model,
        tokenizer=tokenizer,
        dataset=DatasetOptions(
            name=dataset_name,
            path=None if dataset_path is None else str(dataset_path),
            random_input_len=random_input_len,
            random_output_len=random_output_len,
            random_range_ratio=random_range_ratio,
            output_len=None if output_len is None else at_least("--output-len", output_len, 1),
            max_turns=at_least("--max-turns", max_turns, 1),
            is_verbatim=verbatim,
            prefix_len=prefix_len,
            suffix_len=suffix_len,
            num_prefixes=at_least("--prefix-repetition-num-prefixes", num_prefixes, 1),
            num_turns=at_least("--num-turns", num_turns, 1),
            opening_len=at_least("--opening-len", opening_len, 0),
            pause_s=pause,
            published=published,
            length_scale=length_scale,
            trace_columns=read_pairs("--timed-trace-columns", timed_trace_columns),
            trace_block_len=timed_trace_chunk_hash_size,
            trace_unit_s=timed_trace_sec_multiplier,
            trace_length_scale=trace_length_scale,
            trace_speed=trace_speed,
        ),
        loads=read_loads(
            LoadFlags(
                max_concurrency,
                request_rate,
                burstiness,
                ramp_up_strategy,
                ramp_up_start_rps,
                ramp_up_end_rps,
                trace_times,
                detect_saturation,
            )
        ),
        repeats=at_least("--repeats", repeats, 1),
        num_prompts=None if num_prompts is None else at_least("--num-prompts", num_prompts, 1),
        num_warmups=at_least("--num-warmups", num_warmups, 0),
        seed=secrets.randbits(31) if seed is None else seed,
        warm_cache=warm_cache,
        is_stream=stream,
        ignore_eos=ignore_eos,
        limits_ms=read_limits(goodput),
        percents=list(figures.percents),
        fields=fields,
        is_insecure=insecure,
        metrics_path=metrics_path or None,
        timeout_s=request_timeout,
        detect_saturation=detect_saturation,
        label=label,
        metadata=read_pairs("--metadata", metadata),
    )
    if write_trace is not None:
        save_trace(options, write_trace)
        return
    files = files_of(result_dir, result_filename, is_saved=is_saved, is_detailed=save_detailed)
    execute(options, replace(files, report=report), figures, header)
