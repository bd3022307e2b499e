"""The engines that run kernels, behind one contract.

This folder is the only place that knows Taichi's or Quadrants' private ways. Everybody else
asks for an `Engine` by name, or by handing over a kernel, and never imports an engine: a
user of one engine does not need the other.
"""

from ._annotations import DTYPES, FLOATS, HALVES, INTEGERS, NAMES, SPEC_DTYPES, array_text
from ._common import bind_scalars, hold
from ._compiling import COMPILING, one_at_a_time
from ._contract import (
    MOST_ELEMENTS,
    ArrayArgument,
    Compiled,
    CompileOptions,
    Engine,
    FieldFacts,
    HeldLaunch,
    Launch,
    Parameter,
    Probe,
)
from ._forks import remedy_for_lost_field, survive_forks
from ._language import Language, StructFacts
from ._listening import Listener
from ._module_name import module_name, preferred_name
from ._parsing import (
    column_of,
    compile_expression,
    count_column,
    file_lines,
    keep_lines,
    parse_expression,
    parse_indented,
    parse_lines,
    parse_module,
    parse_statement,
    source_lines,
)
from ._probe import probes
from ._registry import (
    choose_default,
    find_replaced,
    get,
    is_kernel,
    list_installed,
    list_loaded,
    list_running,
    of_field,
    of_kernel,
    public_name,
    run_on,
    runner_of,
)
from ._start import init, init_quietly
from ._trees import complete_places, copy_node, walk
from .python import (
    EXACT_OPERATIONS,
    Checks,
    ExactArray,
    ExactKernel,
    How,
    NoRule,
    Number,
    Python,
    Recorder,
    Watch,
    hide_frames,
    track_writes,
)

__all__ = [
    "ArrayArgument",
    "COMPILING",
    "Checks",
    "CompileOptions",
    "Compiled",
    "DTYPES",
    "EXACT_OPERATIONS",
    "Engine",
    "ExactArray",
    "ExactKernel",
    "FLOATS",
    "FieldFacts",
    "HALVES",
    "HeldLaunch",
    "How",
    "INTEGERS",
    "Language",
    "Launch",
    "Listener",
    "MOST_ELEMENTS",
    "NAMES",
    "NoRule",
    "Number",
    "Parameter",
    "Probe",
    "Python",
    "Recorder",
    "SPEC_DTYPES",
    "StructFacts",
    "Watch",
    "array_text",
    "bind_scalars",
    "choose_default",
    "column_of",
    "compile_expression",
    "complete_places",
    "copy_node",
    "count_column",
    "file_lines",
    "find_replaced",
    "get",
    "hide_frames",
    "hold",
    "init",
    "init_quietly",
    "is_kernel",
    "keep_lines",
    "list_installed",
    "list_loaded",
    "list_running",
    "module_name",
    "of_field",
    "of_kernel",
    "one_at_a_time",
    "parse_expression",
    "parse_indented",
    "parse_lines",
    "parse_module",
    "parse_statement",
    "preferred_name",
    "probes",
    "public_name",
    "remedy_for_lost_field",
    "run_on",
    "runner_of",
    "source_lines",
    "survive_forks",
    "track_writes",
    "walk",
]
