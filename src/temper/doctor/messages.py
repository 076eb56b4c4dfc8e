"""Known messages of tt-metal, tt-umd, tt-xla, pybuda, their tools and of Temper itself."""

from __future__ import annotations

from temper.doctor import arithmetic
from temper.doctor.explain import Known

_HUGEPAGES = (
    "scripts/setup_hugepages.sh 4 shows what to do, --apply does it (1 GiB pages, not 2 MiB)",
    "switch the IOMMU to translating (kernel command line: intel_iommu=on or amd_iommu=on, and no "
    "iommu=pt), then none are needed",
    "temper doctor says which of pages, mount and IOMMU is missing",
)

MESSAGES = (
    Known(
        "out-of-memory-l1",
        r"Not enough space (?:after considering dependencies )?to allocate \d+ B (?:L1|L1_SMALL)\b",
        "A tensor does not fit in SRAM (L1)",
        "the allocator found no hole of that size in every core's SRAM; it comes at op launch",
        (
            "put this tensor in DRAM (DRAM_MEMORY_CONFIG, or optimization_level=1)",
            "make it smaller: a lower batch, or bfloat8_b instead of bfloat16 (47% less)",
            "free earlier SRAM tensors (deallocate) or shard over more cores; "
            "'temper memory' draws what is live",
        ),
        "tt-metal bank_manager.cpp",
        arithmetic.allocation,
    ),
    Known(
        "out-of-memory-dram",
        r"Not enough space (?:after considering dependencies )?to allocate \d+ B (?:DRAM|TRACE)\b",
        "A tensor does not fit in the card's DRAM",
        "weights, activations and the trace region share DRAM; every bank reserves the same amount",
        (
            "a lower batch or sequence: 'temper fit' finds the largest that fits",
            "weights in bfloat8_b or bfloat4_b (experimental_weight_dtype)",
            "a smaller trace region, and drop models that are no longer used",
        ),
        "tt-metal bank_manager.cpp",
        arithmetic.allocation,
    ),
    Known(
        "circular-buffers-beyond-l1",
        r"circular buffers on core range .*? beyond max L1 size",
        "An op's circular buffers alone are larger than a core's SRAM",
        "no placement of tensors can help: the op's own working buffers must shrink",
        (
            "smaller blocks: in0_block_w, act_block_h or per-core sizes in the op's config",
            "a smaller inner size or a split op; bfloat8_b inputs halve the buffers",
            "optimization_level=1 lets ttnn choose its default config",
        ),
        "tt-metal program.cpp",
        arithmetic.beyond_l1,
    ),
    Known(
        "circular-buffers-clash",
        r"circular buffers (?:in program \d+ )?clash with L1 buffers",
        "An op's circular buffers run into tensors in SRAM",
        "buffers grow from the bottom of a core's SRAM, tensors from the top; here they meet",
        (
            "move a long-lived SRAM tensor to DRAM (it need not be one of this op)",
            "smaller blocks in the op's config, so that its buffers end lower",
            "deallocate or move SRAM tensors before this op; 'temper memory' shows both sides",
        ),
        "tt-metal program.cpp",
        arithmetic.clash,
    ),
    Known(
        "trace-region",
        r"Creating trace buffers of size \d+ ?B .*? only \d+ ?B is allocated for trace region",
        "The trace region is too small for the recorded trace",
        "the size is the total over all DRAM banks in ttnn 0.81.1; older versions: per bank",
        (
            "raise TT_RUNTIME_TRACE_REGION_SIZE (tt-xla) or trace_region_size (ttnn) as computed",
            "size 0 lets current tt-metal place trace buffers in ordinary DRAM",
            "trace fewer ops: split the model, or trace only its repeated part",
        ),
        "tt-metal mesh trace code; ttnn 0.81.1",
        arithmetic.trace_region,
    ),
    Known(
        "trace-binaries",
        r"Cannot load new binaries during trace capture",
        "A program was not in the cache when the trace was recorded",
        "recording only replays commands: every op must have run once with the same shapes",
        (
            "run the model once (warm-up) with exactly these shapes before capture",
            "keep the program cache on (unset TT_RUNTIME_ENABLE_PROGRAM_CACHE=0)",
            "make shapes static: a new shape inside the captured part is a new program",
        ),
        "tt-metal trace rules",
    ),
    Known(
        "trace-io",
        r"not supported during trace capture",
        "A host read, write or wait happened while a trace was recorded",
        "a trace holds device commands only; inputs are copied into fixed buffers before replay",
        (
            "move transfers and synchronisation before or after the captured part",
            "preallocate inputs on the device and copy into them",
            "look for .item(), print or to_torch inside the model",
        ),
        "tt-metal trace rules",
    ),
    Known(
        "no-device",
        r"No Tenstorrent devices? (?:present|found|detected)|No chips detected|"
        r"No (?:TT )?devices found|could not find any tenstorrent",
        "No card could be opened",
        "no card, no driver, or no permission: three different things that give one message",
        (
            "temper doctor tells which of the three it is",
            "without a card use the virtual chip: torch.compile(model, backend='tt')",
            "in a container pass --device /dev/tenstorrent and the hugepages mount",
        ),
        "pybuda, tt-metal, tt-umd",
    ),
    Known(
        "iommu-or-hugepages",
        r"IOMMU is required for sysmem without hugepages",
        "Neither a translating IOMMU nor 1 GiB hugepages",
        "the card needs one of the two to reach host memory",
        _HUGEPAGES,
        "tt-umd sysmem manager",
    ),
    Known(
        "hugepages",
        r"hugepage.{0,60}(?:fail|could not|no huge page mount|cannot open)|no huge page mount|"
        r"Insufficient NumHugepages|NumHostMemChannels: \d+ used|"
        r"Failed to allocate or map an? hugepage|Failed to pin pages",
        "The driver did not get its 1 GiB hugepages",
        "it wants files on hugetlbfs at /dev/hugepages-1G, one page a Grayskull, four a newer card",
        _HUGEPAGES,
        "tt-umd hugepage.cpp",
        arithmetic.pages,
    ),
    Known(
        "driver-version",
        r"requires KMD version [\d.]+ or newer|KMD version .{0,40}(?:too old|not supported)|"
        r"IOMMU support prior to KMD",
        "The kernel driver is older than the user-mode driver needs",
        "tt-kmd and the tt-metal in use are of different generations",
        (
            "install the current tt-kmd (dkms) and reload it: sudo modprobe -r tenstorrent && "
            "sudo modprobe tenstorrent",
            "on Grayskull do the opposite: keep tt-kmd 1.31 and use tt-metal v0.55",
            "in a container update the host's driver: it is the kernel's, not the image's",
        ),
        "tt-umd pci_device.cpp",
    ),
    Known(
        "firmware-old",
        r"Firmware (?:bundle )?version .{1,40} is older than",
        "The card's firmware is older than the user-mode driver accepts",
        "a newer tt-metal needs newer firmware on the card",
        (
            "flash the current bundle with tt-flash, then reset or reboot",
            "use a tt-metal release of the firmware's time",
            "temper doctor shows the bundle that the card reports",
        ),
        "tt-umd topology_discovery.cpp",
        arithmetic.firmware,
    ),
    Known(
        "firmware-new",
        r"Firmware (?:bundle )?version .{1,40} is newer than",
        "Harmless: the firmware is newer than a fixed number in tt-umd",
        "a warning only; the number lags behind releases and was dropped upstream later",
        (
            "ignore it",
            "update tt-metal if you need features of the new firmware",
            "look further up or down in the log for the real error",
        ),
        "tt-umd pull request 2945",
    ),
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
        "profiler-full",
        r"Profiler DRAM buffers were full|markers? (?:were|was) dropped",
        "The device profiler lost markers",
        "its buffers hold 1000 programs between two reads",
        (
            "raise TT_METAL_PROFILER_PROGRAM_SUPPORT_COUNT",
            "profile fewer iterations",
            "read results between iterations (ttnn.ReadDeviceProfiler)",
        ),
        "tt-metal profiler",
    ),
    Known(
        "profiler-and-print",
        r"Cannot enable both debug printing and profiling",
        "Debug print and the profiler exclude each other",
        "both use the same buffers on the card",
        (
            "unset TT_METAL_DPRINT_CORES",
            "unset TT_METAL_DEVICE_PROFILER",
            "run twice, once with each",
        ),
        "tt-metal rtoptions.cpp",
    ),
    Known(
        "arch-name",
        r"ARCH_NAME.{0,60}(?:not set|unset|invalid|unknown|must be|unsupported)|"
        r"(?:unknown|invalid|unsupported|unrecogni[sz]ed) arch(?:itecture)?\b.{0,40}",
        "The architecture's name is missing or wrong",
        "names are grayskull, wormhole_b0 and blackhole; board names (n150) are not taken here",
        (
            "export ARCH_NAME=wormhole_b0 (n150, n300), blackhole (p100, p150) or grayskull",
            "current wheels need no ARCH_NAME: unset it",
            "tt-perf-report knows no Grayskull: pass --arch wormhole there",
        ),
        "tt-metal; tt-perf-report",
    ),
    Known(
        "wheel",
        r"No matching distribution found for (?:ttnn|pjrt-plugin-tt|tt-smi)|"
        r"satisfies the requirement (?:ttnn|pjrt-plugin-tt)|not a supported wheel on this platform",
        "No wheel for this Python",
        "ttnn 0.81.1 is published for Python 3.10 and 3.12 on Linux x86-64 only",
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
        "metal-home",
        r"TT_METAL_HOME.{0,40}(?:not set|is not|unset|does not exist)",
        "tt-metal does not find its files",
        "a source build finds kernels through TT_METAL_HOME; wheels bring their own",
        (
            "export TT_METAL_HOME=<the checkout>",
            "with a wheel: unset it, also in .bashrc",
            "temper doctor checks that the directory exists",
        ),
        "tt-metal",
    ),
    Known(
        "kernel-build",
        r"Failed to generate binaries|(?:trisc|brisc|ncrisc)\w* (?:build|compile) failed|"
        r"sfpi.{0,60}(?:not found|missing)",
        "A kernel did not compile",
        "the RISC-V compiler is missing, the disk is full, or the cache is damaged",
        (
            "read the compiler's lines above this one in the log",
            "remove the kernel cache (~/.cache/tt-metal-cache) and try again",
            "check free disk space; reinstall ttnn if the sfpi compiler is missing",
        ),
        "tt-metal jit_build",
    ),
    Known(
        "device-hang",
        r"failed to initialize FW|Timed? ?out (?:while )?waiting for (?:ARC|physical cores|device)|"
        r"ARC core .{0,40}(?:hang|hung|not)|Read 0xffffffff from",
        "The card does not answer",
        "its firmware hangs, mostly after a run that was killed; 0xffffffff means it left the bus",
        (
            "end processes that hold it, then tt-smi -r 0",
            "power the machine off and on (a warm reboot may not reset the card)",
            "temper doctor looks at link, heartbeat and AER errors",
        ),
        "tt-umd, tt-metal",
    ),
    Known(
        "device-busy",
        r"Waiting for lock 'CHIP_IN_USE|CHIP_IN_USE_\d+|Device or resource busy",
        "Another process uses the card",
        "one program at a time may open it",
        (
            "temper doctor names the process that holds it",
            "wait for it, or end it by its number if it is yours",
            "several cards: choose one with TT_METAL_VISIBLE_DEVICES",
        ),
        "tt-umd",
    ),
    Known(
        "permission",
        r"(?:/dev/tenstorrent\S*.{0,60}Permission denied|Permission denied.{0,60}/dev/tenstorrent)",
        "The card is there; this user may not open it",
        "tt-kmd's udev rule sets mode 0666; it is missing or another rule wins",
        (
            "install the rule, then sudo udevadm control --reload && sudo udevadm trigger",
            "in a container run with --device /dev/tenstorrent and the right user",
            "until then: sudo chmod 0666 /dev/tenstorrent/0",
        ),
        "tt-kmd udev rules",
    ),
    Known(
        "shards",
        r"number of shards.{0,120}(?:must not exceed|exceeds|greater than)",
        "More shards than cores",
        "every shard needs its own core of the grid",
        (
            "larger shards, or fewer of them",
            "block sharding uses both grid axes",
            "interleaved layout has no such limit",
        ),
        "tt-metal tensor layout checks",
        arithmetic.shards,
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
