"""What is done for each kind of job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from models import Base, SimulationRow, SweepPartRow, TraceRow
from planner.catalog.book import Catalog
from planner.catalog.store import catalog_from_db
from planner.jobs.kinds import SIMULATION, SWEEP
from planner.jobs.run import JobFailed, Run
from planner.jobs.runner import Handler
from planner.jobs.sending import pack_catalog
from planner.simulations.tasks import simulate_job
from planner.sweeps.grid import Grid, from_json
from planner.sweeps.tasks import plan_part


def work_on_sweep(run: Run) -> list[Base]:
    """Plan with the stored catalog, see :func:`plan_missing_parts`."""
    with Session(run.engine) as session:
        catalog = catalog_from_db(session)
    return plan_missing_parts(run, catalog)


def plan_missing_parts(run: Run, catalog: Catalog) -> list[Base]:
    """Plan the parts that are not there yet, each stored as soon as it is finished."""
    grid = from_json(run.request)
    with Session(run.engine) as session:
        query = select(SweepPartRow.part, SweepPartRow.cells).where(
            SweepPartRow.sweep == run.job_id)
        stored: dict[int, int] = dict(session.execute(query).all())
    finished = sum(stored.values())
    run.keep(finished / grid.cells)
    todo = (part for part in range(grid.parts) if part not in stored)
    for part, rows in finished_parts(run, grid, catalog, todo):
        cells = len(grid.part(part))
        finished += cells
        run.keep(finished / grid.cells,
                 [SweepPartRow(sweep=run.job_id, part=part, cells=cells, rows=rows)])
    return []


def finished_parts(run: Run, grid: Grid, catalog: Catalog, parts: Iterable[int]
                   ) -> Iterator[tuple[int, bytes]]:
    """Parts of a sweep in the order in which they are finished."""
    book, sweep = pack_catalog(catalog), grid.to_json()
    yield from run.gather(parts, lambda part: (plan_part, (book, sweep, part)))


def work_on_simulation(run: Run) -> list[Base]:
    """Simulate in one task, which says how far it is."""
    slug, trace = run.request["trace"], None
    with Session(run.engine) as session:
        if slug is not None:
            row = session.get(TraceRow, slug)
            if row is None:
                raise JobFailed(f"the trace {slug!r} was deleted before the simulation began")
            trace = row.data
        catalog = pack_catalog(catalog_from_db(session))
    document, columns = run.alone(simulate_job, catalog, run.request, trace)
    return [SimulationRow(id=run.job_id, result=document, requests=columns)]


HANDLERS: dict[str, Handler] = {SWEEP: work_on_sweep, SIMULATION: work_on_simulation}
"""By kind: takes a run, returns the rows to store when the job is done."""
