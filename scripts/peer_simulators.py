"""Run one public simulator on a trace and print what its event loop took.

Called by ``scripts.bench_simulators`` with the interpreter of that simulator's own environment; it
imports nothing of this project. Reading the trace, fitting predictors and writing results are not
counted: only processor seconds of the loop.

    python scripts/peer_simulators.py NAME FOLDER TRACE.csv REPLICAS

The trace is ``arrival_s, prompt_tokens, output_tokens``. Prints ``{"loop_s", "requests"}`` as the
last line.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

MOST_TOKENS = 16384
"""[token] of a request that Vidur is asked to predict."""


def timed(work):
    """Processor seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def vidur(folder, rows, replicas):
    """Vidur: Llama 3 8B on A100, Sarathi with chunks of 2,048, least outstanding requests.

    Its linear predictor, since fitting takes no part in the time. Where the attention profile is
    missing from a copy without large files, lines of the same columns stand in for it: a looked-up
    step time costs the same whatever it is.
    """
    import atexit

    sys.path.insert(0, str(folder))
    os.environ["WANDB_MODE"] = "disabled"
    os.chdir(folder)
    work = Path(tempfile.mkdtemp())
    _write(work / "trace.csv", ["arrived_at", "num_prefill_tokens", "num_decode_tokens"], rows)
    profile = folder / "data/profiling/compute/a100/meta-llama/Meta-Llama-3-8B/attention.csv"
    if not profile.exists():
        profile = _attention_lines(work / "attention.csv")
    predictor = "--linear_regression_execution_time_predictor_config_"
    sys.argv = ["vidur"] + [x for pair in {
        "--replica_config_device": "a100",
        "--replica_config_model_name": "meta-llama/Meta-Llama-3-8B",
        "--cluster_config_num_replicas": replicas,
        "--replica_config_tensor_parallel_size": 1, "--replica_config_num_pipeline_stages": 1,
        "--request_generator_config_type": "trace_replay",
        "--trace_request_generator_config_trace_file": work / "trace.csv",
        "--trace_request_generator_config_max_tokens": MOST_TOKENS,
        "--replica_scheduler_config_type": "sarathi",
        "--sarathi_scheduler_config_batch_size_cap": 256,
        "--sarathi_scheduler_config_chunk_size": 2048,
        "--global_scheduler_config_type": "lor",
        "--execution_time_predictor_config_type": "linear_regression",
        predictor + "attention_input_file": profile, predictor + "k_fold_cv_splits": 2,
        predictor + "prediction_max_prefill_chunk_size": 2048,
        predictor + "prediction_max_batch_size": 256,
        predictor + "prediction_max_tokens_per_request": MOST_TOKENS,
        "--metrics_config_output_dir": work,
    }.items() for x in map(str, pair)] + ["--no-metrics_config_write_metrics"]
    from vidur.config import SimulationConfig
    from vidur.simulator import Simulator

    simulator = Simulator(SimulationConfig.create_from_cli_args())
    atexit.unregister(simulator._write_output)
    return timed(simulator.run)


def _attention_lines(path):
    """An attention profile of straight lines in Vidur's columns."""
    names = ["n_embd", "n_q_head", "n_kv_head", "block_size", "num_tensor_parallel_workers",
             "prefill_chunk_size", "batch_size", "kv_cache_size", "time_stats.attn_prefill.median",
             "time_stats.attn_decode.median", "time_stats.attn_kv_cache_save.median"]
    model, rows = (4096, 32, 8, 16, 1), []
    for cached in (0, 64, 256, 1024, 4096, MOST_TOKENS):
        rows += [(*model, chunk, 1, cached, 0.01 + 1.3e-8 * chunk * (cached + chunk / 2), 0.0,
                  0.005 + 1e-6 * chunk) for chunk in (32, 64, 128, 256, 512, 1024, 2048)]
        rows += [(*model, 0, batch, cached, 0.0, 0.01 + 1.3e-6 * batch * cached,
                  0.005 + 1e-6 * batch) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256) if cached]
    _write(path, names, rows)
    return path


def splitwise(folder, rows, replicas):
    """splitwise-sim: Llama 2 70B, one DGX H100 a replica, mixed batching, shortest token queue."""
    sys.path.insert(0, str(folder))
    work = Path(tempfile.mkdtemp())
    shutil.copytree(folder / "configs", work / "configs")
    config = work / "configs" / "config.yaml"
    text = config.read_text().replace("  - override hydra/launcher: ray\n", "")
    config.write_text(re.sub(r"  launcher:\n(    .*\n)+", "", text))
    _write(work / "bench.csv", ["request_id", "request_type", "application_id", "arrival_timestamp",
                                "batch_size", "prompt_size", "token_size"],
           [(i, 2, 0, at + 1e-3, 1, prompt, output) for i, (at, prompt, output)
            in enumerate(rows)])
    import simulator

    took, loop = [], simulator.Simulator.run
    simulator.Simulator.run = lambda self: took.append(timed(lambda: loop(self)))
    os.chdir(folder)  # it reads its performance table from where it was started
    sys.argv = ["run.py", "--config-path", str(work / "configs"), "applications.0.scheduler="
                "token_jsq", "cluster=half_half", "cluster.servers.0.count=0",
                f"cluster.servers.1.count={replicas}", "start_state=baseline",
                "performance_model=db", "trace.filename=bench", f"trace.dir={work}/",
                f"output_dir={work}/out", "debug=False", "seed=0"]
    main = folder / "run.py"
    exec(compile(main.read_text(), str(main), "exec"), {"__name__": "__main__"})
    return took[0]


def simdistserve(folder, rows, replicas):
    """DistServe's simulator, its vLLM cluster: OPT-13B on A100, prefill first."""
    sys.path.insert(0, str(folder))
    import simpy
    from simdistserve.base.scheduler import put_requests_with_interarrivals
    from simdistserve.base.worker import WorkerConfig
    from simdistserve.base.workload import (
        convert_absolutearrival_to_interarrival,
        convert_pd_pair_to_request,
    )
    from simdistserve.clusters.vllm import VLLMCluster
    from simdistserve.constants import ModelTypes
    from simdistserve.estimators.memory_estimator import get_max_num_tokens

    most = get_max_num_tokens(ModelTypes.opt_13b, 1, 1)
    env = simpy.Environment()
    cluster = VLLMCluster(env=env, N_instance=replicas, PP=1, worker_configs=WorkerConfig(
        model_type=ModelTypes.opt_13b, TP=1, TP_Prefill=1, TP_Decode=1,
        prefill_max_batch_size=10**7, decode_max_batch_size=10**7, prefill_max_tokens=most,
        decode_max_tokens=most, enable_chunked_prefill=False, engine_type="vllm"))
    cluster.run()
    put_requests_with_interarrivals(
        env, cluster.scheduler, convert_absolutearrival_to_interarrival([r[0] for r in rows]),
        convert_pd_pair_to_request([(r[1], r[2]) for r in rows]))
    return timed(env.run)


def howmanygpus(folder, rows, replicas):
    """howmanygpus: its 8B preset on H100; its arrivals replaced by the trace."""
    sys.path.insert(0, str(folder / "src"))
    import simpy
    from howmanygpus import presets, simulation, spec

    model = next(m for m in _presets(presets, spec.ModelSpec) if "8b" in m.name.lower())
    gpu = next(g for g in _presets(presets, spec.GPUSpec) if "h100" in g.name.lower())
    env, done = simpy.Environment(), []
    fleet = [simulation.Replica(env, i, model, gpu, spec.ParallelismSpec(replicas=replicas),
                                spec.EfficiencySpec(), 256, done) for i in range(replicas)]

    def arrive():
        for i, (at, prompt, output) in enumerate(rows):
            yield env.timeout(at - env.now)
            min(fleet, key=lambda r: r.load).submit(spec.Request(
                id=i, arrived_at=env.now, prompt_len=prompt, output_len=output))

    env.process(arrive())
    took = timed(lambda: env.run(until=rows[-1][0] + 300.0))
    if len(done) < 0.99 * len(rows):
        raise SystemExit(f"only {len(done)} of {len(rows)} requests ended")
    return took


def _presets(module, kind):
    """Every preset of a kind, in a mapping, a list or by itself."""
    for value in vars(module).values():
        inner = value.values() if isinstance(value, dict) else value
        for item in inner if not isinstance(inner, str) and hasattr(inner, "__iter__") else [inner]:
            if isinstance(item, kind):
                yield item


def _write(path, names, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


PEERS = {f.__name__: f for f in (vidur, splitwise, simdistserve, howmanygpus)}


def main(name, folder, trace, replicas):
    """Print what the loop of a simulator took."""
    with open(trace, newline="") as file:
        rows = [(float(a), int(float(p)), int(float(o))) for a, p, o in list(csv.reader(file))[1:]]
    with contextlib.redirect_stdout(sys.stderr):
        took = PEERS[name](Path(folder).resolve(), rows, int(replicas))
    print(json.dumps({"loop_s": took, "requests": len(rows)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
