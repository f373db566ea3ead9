"""``freehold bench``. One long function: a command's options are its arguments, and it only puts each in its place."""

import secrets
from dataclasses import replace
from pathlib import Path

from freehold.cli import bench_flags as flags
from freehold.cli.remote_server import local_url


def bench(
    base_url: flags.BaseUrl = None,
    backend: flags.Backend = "openai",
    endpoint: flags.Endpoint = None,
    model: flags.Model = None,
    tokenizer: flags.Tokenizer = None,
    dataset_name: flags.DatasetName = "random",
    dataset_path: flags.DatasetPath = None,
    random_input_len: flags.RandomInputLen = 256,
    random_output_len: flags.RandomOutputLen = 128,
    random_range_ratio: flags.RandomRangeRatio = 0.0,
    output_len: flags.OutputLen = None,
    max_turns: flags.MaxTurns = 1,
    verbatim: flags.Verbatim = False,
    prefix_len: flags.PrefixLen = 256,
    suffix_len: flags.SuffixLen = 256,
    num_prefixes: flags.NumPrefixes = 10,
    num_turns: flags.NumTurns = 5,
    opening_len: flags.OpeningLen = 0,
    pause: flags.Pause = 1.0,
    published: flags.PublishedName = "chat",
    length_scale: flags.LengthScale = 1.0,
    timed_trace_columns: flags.TraceColumns = None,
    timed_trace_chunk_hash_size: flags.TraceBlockLen = 16,
    timed_trace_sec_multiplier: flags.TraceUnit = 0.001,
    trace_length_scale: flags.TraceLengthScale = None,
    trace_speed: flags.TraceSpeed = 1.0,
    num_prompts: flags.NumPrompts = None,
    max_concurrency: flags.MaxConcurrency = None,
    request_rate: flags.RequestRate = None,
    burstiness: flags.Burstiness = 1.0,
    ramp_up_strategy: flags.RampUpStrategy = None,
    ramp_up_start_rps: flags.RampUpStart = None,
    ramp_up_end_rps: flags.RampUpEnd = None,
    trace_times: flags.TraceTimes = False,
    detect_saturation: flags.DetectSaturation = False,
    repeats: flags.Repeats = 1,
    num_warmups: flags.NumWarmups = 1,
    seed: flags.Seed = None,
    warm_cache: flags.WarmCache = False,
    ignore_eos: flags.IgnoreEos = False,
    temperature: flags.Temperature = None,
    extra_body: flags.ExtraBody = None,
    header: flags.Header = None,
    stream: flags.Stream = True,
    insecure: flags.Insecure = False,
    request_timeout: flags.RequestTimeout = 600.0,
    metrics_path: flags.MetricsPath = "/metrics",
    goodput: flags.GoodputLimits = None,
    percentile_metrics: flags.PercentileMetrics = "ttft,tpot,itl",
    metric_percentiles: flags.MetricPercentiles = "99",
    save_result: flags.SaveResult = False,
    save_detailed: flags.SaveDetailed = False,
    result_dir: flags.ResultDir = Path(),
    result_filename: flags.ResultFilename = None,
    resume: flags.Resume = None,
    label: flags.Label = None,
    metadata: flags.Metadata = None,
    report: flags.Report = None,
    write_trace: flags.WriteTrace = None,
    show: flags.Show = None,
    compare: flags.Compare = None,
    quiet: flags.Quiet = False,
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
        execute(None, Files(resume, resume.with_suffix(".json"), save_detailed, report), figures, header or [])
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
            trace_columns=read_pairs("--timed-trace-columns", timed_trace_columns or []),
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
        limits_ms=read_limits(goodput or []),
        percents=list(figures.percents),
        fields=fields,
        is_insecure=insecure,
        metrics_path=metrics_path or None,
        timeout_s=request_timeout,
        detect_saturation=detect_saturation,
        label=label,
        metadata=read_pairs("--metadata", metadata or []),
    )
    if write_trace is not None:
        save_trace(options, write_trace)
        return
    files = files_of(result_dir, result_filename, is_saved=is_saved, is_detailed=save_detailed)
    execute(options, replace(files, report=report), figures, header or [])
