"""Read by gunicorn when it is started in this folder: every worker loads all parts and takes up
jobs at once.

Without it a worker starts to do so with the first request that needs them.
"""


worker_class = "planner.serving.ProblemWorker"


def pre_request(worker, req):
    """Say that the connection will be closed where it will be."""
    from planner.serving import begin_request

    begin_request(req)


def post_request(worker, req, environ, resp):
    """Read away a body that was refused."""
    from planner.serving import drain

    drain(req, environ)


def post_worker_init(worker):
    """Load all parts; work on jobs, those that an earlier process left behind included."""
    from planner.api.background import load_late_parts, start_jobs

    load_late_parts()
    start_jobs(worker.app.callable)


def worker_exit(server, worker):
    """Put the job at hand back, so that another worker takes it up without waiting."""
    from planner.api.background import stop_jobs

    app = getattr(worker.app, "callable", None)
    if app is not None:
        stop_jobs(app)


def when_ready(server):
    """Compile the simulator's event loop beside the service, unless an earlier start has."""
    from planner.api.background import compile_simulator

    compile_simulator()
