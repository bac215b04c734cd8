"""All advice rules, one per module. If two gains are equal, the advice of the earlier rule comes first."""

from __future__ import annotations

from tony_provider.advice.case import Rule
from tony_provider.advice.rules.checkpoint_interval import CheckpointInterval
from tony_provider.advice.rules.evaluation_missing import EvaluationMissing
from tony_provider.advice.rules.failing_node import FailingNode
from tony_provider.advice.rules.flat_curve import FlatCurve
from tony_provider.advice.rules.gpus_idle import GpusIdle
from tony_provider.advice.rules.input_wait import InputWait
from tony_provider.advice.rules.memory_too_little import MemoryTooLittle
from tony_provider.advice.rules.memory_too_much import MemoryTooMuch
from tony_provider.advice.rules.nothing_reported import NothingReported
from tony_provider.advice.rules.queue_wait import QueueWait
from tony_provider.advice.rules.restart_cost import RestartCost
from tony_provider.advice.rules.slow_start import SlowStart
from tony_provider.advice.rules.straggler import Straggler
from tony_provider.advice.rules.vcores_idle import VcoresIdle

RULES: tuple[Rule, ...] = (
    MemoryTooLittle(),
    FailingNode(),
    GpusIdle(),
    InputWait(),
    Straggler(),
    RestartCost(),
    CheckpointInterval(),
    QueueWait(),
    SlowStart(),
    FlatCurve(),
    MemoryTooMuch(),
    VcoresIdle(),
    EvaluationMissing(),
    NothingReported(),
)
