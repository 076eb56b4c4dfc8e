"""Messages of tt-metal: memory, circular buffers, trace, kernels, profiler."""

from __future__ import annotations

from temper.doctor import arithmetic
from temper.doctor.known import Known

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
)
