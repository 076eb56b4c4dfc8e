"""Messages of tt-xla, pybuda, packaging, tools and Temper; the general ones come last."""

from __future__ import annotations

from temper.doctor import arithmetic
from temper.doctor.known import Known

MESSAGES = (
    Known(
        "xla-boolean",
        r"Unknown boolean option value: \S* for \S+",
        "tt-xla aborts on a boolean it cannot read",
        "only true/1/yes/on and false/0/no/off are accepted, in any case",
        (
            "pass 'true' or 'false' as text",
            "temper takes the same options and names the wrong one: temper options",
            "remove the option to get its default",
        ),
        "tt-xla compile_options.cc",
    ),
    Known(
        "xla-level",
        r"(?:Invalid|Failed to parse) optimization_level",
        "tt-xla aborts on this optimization level",
        "it must be a whole number from 0 to 2",
        (
            "0: fast to compile, everything in DRAM",
            "1: fusion and prepared weights; the usual choice",
            "2: as much as fits in SRAM; slowest to compile, fastest to run",
        ),
        "tt-xla compile_options.cc",
        arithmetic.distance_to_level,
    ),
    Known(
        "xla-export-path",
        r"'?export_path'? must be provided",
        "A code-generating backend needs a folder to write to",
        "backend codegen_cpp or codegen_py was chosen without export_path",
        (
            "add export_path='out'",
            "backend='default' runs instead of exporting",
            "temper options export_path explains it",
        ),
        "tt-xla compile_options.cc",
    ),
    Known(
        "xla-backend",
        r"Unknown backend option value",
        "tt-xla does not know this backend",
        "allowed: default, ttnn_flatbuffer, codegen_cpp, codegen_py, codegen_load_py",
        (
            "use 'default'",
            "temper options backend lists what each does",
            "note that a wrong option NAME is ignored by tt-xla without a word; temper reports it",
        ),
        "tt-xla compile_options.cc",
    ),
    Known(
        "script-imports",
        r"No module named '(?:torch_xla|tt_torch|pybuda|forge|tracy|tt_mlir|ttxla_tools)\b",
        "The script was written for a stack that is not installed here",
        "its imports are those of a machine with the card",
        (
            "temper run script.py runs it as it is, on the virtual chip",
            'temper run -m pytest tests/ does the same for tests; tt_profile "command" too',
            "with a card install the real package; a real one is always preferred",
        ),
        "Temper",
    ),
    Known(
        "capture-timeout",
        r"capture-release.{0,200}timed? out|capture server.{0,80}timed? out",
        "The Tracy capture server never met its client",
        "port 8086 is taken, or a client of an earlier run is still alive",
        (
            "end leftover python and capture-release processes by their number "
            "(temper doctor lists them)",
            "ss -ltnp 'sport = :8086' shows who has the port; tt_profile -p chooses another",
            "temper profile uses its own free port and needs no Tracy build",
        ),
        "tt-torch profiling guide",
    ),
    Known(
        "port-in-use",
        r"Address already in use",
        "Another process listens on this port",
        "for the profiler that is usually a leftover of an earlier run on 8086",
        (
            "find it: ss -ltnp 'sport = :8086'",
            "choose another port with -p",
            "wait a minute: closed ports stay reserved for a while",
        ),
        "operating system",
    ),
    Known(
        "wheel",
        r"No matching distribution found for (?:ttnn|pjrt-plugin-tt|tt-smi)|"
        r"satisfies the requirement (?:ttnn|pjrt-plugin-tt)|not a supported wheel on this platform",
        "No wheel for this Python",
        "ttnn 0.81.1 is published for Python 3.10 and 3.12 on Linux",
        (
            "python3.12 -m venv env, and install there",
            "use the vendor's container image",
            "without a card temper needs no ttnn",
        ),
        "package index",
    ),
    Known(
        "undefined-symbol",
        r"(?:_XLAC|ttnn|tt_metal|_C)\S*\.so.{0,80}undefined symbol",
        "A compiled package was built against another torch",
        "torch_xla and torch must be of exactly matching versions",
        (
            "install the torch version that the plug-in's release names",
            "make a fresh virtual environment",
            "pip check shows conflicting requirements",
        ),
        "tt-xla installation",
    ),
    Known(
        "tt-smi-flags",
        r"tt-smi.{0,80}unrecognized arguments|unrecognized arguments: --(?:temperature|power|cores|"
        r"diagnostics)",
        "tt-smi has no such option",
        "the tuning guide names --temperature and --power, which never existed",
        (
            "temper monitor shows temperature, power and clocks",
            "tt-smi -s prints everything as JSON",
            "tt-smi without options opens its own screen",
        ),
        "tt-smi 6.8.0",
    ),
    Known(
        "pybuda-names",
        r"module 'pybuda' has no attribute '(?:TFDevice|compile)'|'module' object is not callable",
        "The guide's pybuda calls do not exist in TT-Buda",
        "pybuda.compile is a module there and TFDevice was never a class",
        (
            "temper run script.py runs the guide's scripts as they are, on the virtual chip",
            "in TT-Buda: pybuda.TTDevice and pybuda.run_inference",
            "newer: forge.compile, or torch.compile(backend='tt')",
        ),
        "tt-buda",
    ),
    Known(
        "temper-memory",
        r"temper: .{0,200}does not fit",
        "Temper found before running that this does not fit",
        "the lines below it carry the arithmetic: 'needs' is the demand, 'try' what would fit",
        (
            "take the first thing in its 'try' line",
            "temper fit finds the largest batch that fits",
            "temper memory draws SRAM and DRAM over the program",
        ),
        "temper",
    ),
    Known(
        "temper-name",
        r"temper: (?:unknown|no) \w+ '?",
        "A name that Temper does not know",
        "names are never guessed; its 'allowed' or 'try' line has the nearest right ones",
        (
            "take the name in its 'try' line",
            "temper options, temper chip and temper --help list what exists",
            "options of tt-xla are accepted in both spellings, with - and with _",
        ),
        "temper",
    ),
    Known(
        "other-temper",
        r"temper: ",
        "A message of Temper",
        "its indented lines say what it needs, what is allowed, and what to try",
        (
            "follow its 'try' line",
            "temper --debug <command> shows where it arose",
            "temper doctor, if it is about this machine",
        ),
        "temper",
    ),
    Known(
        "other-allocation",
        r"Failed to allocate|Out of Memory",
        "Something did not fit in memory",
        "the line does not say which memory: SRAM, DRAM, hugepages or host",
        (
            "temper doctor --symptom memory-errors walks through all four",
            "give the whole log with: temper doctor --error - < log",
            "a lower batch is the quickest test",
        ),
        "tuning guide",
    ),
    Known(
        "other-status",
        r"Bad StatusOr access|Error code: 13",
        "A later sign of an earlier error",
        "the runtime failed and the frame around it only noticed; the cause stands above",
        (
            "look for TT_FATAL or TT_THROW further up and explain that line",
            "give the whole log with: temper doctor --error - < log",
            "TTXLA_LOGGER_LEVEL=DEBUG prints more",
        ),
        "tt-xla",
    ),
    Known(
        "other-fatal",
        r"TT_(?:FATAL|THROW|ASSERT)",
        "A check inside tt-metal failed",
        "this text is not in the table; its file name says which part",
        (
            "read the sentence after 'info:'; it names the argument",
            "search for it in the issues of tenstorrent/tt-metal",
            "run the same model on the virtual chip: temper finds memory and shape errors first",
        ),
        "tt-metal",
    ),
)
