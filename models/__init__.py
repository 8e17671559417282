"""Database tables only: no Flask, no calculation."""

from models.base import Base
from models.budget import BudgetRow
from models.engine import EngineRow
from models.gpu import GpuRow
from models.job import JobRow, SimulationRow, SweepPartRow
from models.llm import LlmRow
from models.plan import PlanRow
from models.price import PriceRow
from models.trace import TraceRow
from models.workload import WorkloadRow

__all__ = ["Base", "BudgetRow", "EngineRow", "GpuRow", "JobRow", "LlmRow", "PlanRow", "PriceRow",
           "SimulationRow", "SweepPartRow", "TraceRow", "WorkloadRow"]
