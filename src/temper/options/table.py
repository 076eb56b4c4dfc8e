"""Every compile option: name, type, default, meaning and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["bool", "int", "float", "choice", "format", "fidelity", "chip", "text", "overrides"]


@dataclass(frozen=True, slots=True)
class Option:
    """One compile option. ``levels`` are defaults that an optimization level sets."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    origin: Literal["tt-xla", "guides", "temper"]
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    levels: Mapping[int, Any] = field(default_factory=dict)
    env: str = ""
    minimum: float | None = None
    maximum: float | None = None
    without_effect: str = ""  # why it is accepted and not acted on; empty for all others

    @property
    def allowed(self) -> str:
        """What a user may give, in words."""
        if self.kind == "bool":
            return "true/1/yes/on or false/0/no/off"
        if self.kind in ("choice", "format", "fidelity", "chip"):
            return ", ".join(choice or '""' for choice in self.choices)
        if self.kind in ("int", "float"):
            word = "a whole number" if self.kind == "int" else "a number"
            if self.minimum is not None and self.maximum is not None:
                return f"{word} from {self.minimum:g} to {self.maximum:g}"
            return f"{word} of at least {self.minimum:g}" if self.minimum is not None else word
        if self.kind == "overrides":
            return "a mapping of name patterns to formats, a .json file, or one format"
        return "text"


_OFF_FROM_1 = {0: False, 1: True, 2: True}

OPTIONS: tuple[Option, ...] = (
    # --- tt-xla's custom compile options (pjrt_implementation compile_options.h)
    Option("optimization_level", "int", 0,
           "0: no optimiser pass, all tensors in DRAM; 1: const-eval, fusion, ttnn's compute "
           "configs; 2: as many tensors in SRAM as fit and pay", "tt-xla",
           aliases=("level",), minimum=0, maximum=2),
    Option("experimental_weight_dtype", "format", "",
           "format of all matmul and linear weights", "tt-xla",
           choices=("", "bfloat8_b", "bfloat4_b"), aliases=("weight_dtype",)),
    Option("experimental_kv_cache_dtype", "format", "",
           "format of the KV cache of a decoder that generates on the chip", "tt-xla",
           choices=("", "bfloat8_b", "bfloat4_b")),
    Option("enable_activation_dtype_lowering", "bool", False,
           "lower activations around collectives", "tt-xla",
           without_effect="a single chip has no collectives"),
    Option("math_fidelity", "fidelity", "",
           "fidelity of every matrix op; ttnn_default takes ttnn's choice per op", "tt-xla",
           choices=("", "LoFi", "HiFi2", "HiFi3", "HiFi4", "ttnn_default"),
           levels={0: "HiFi4", 1: "ttnn_default", 2: "ttnn_default"}),
    Option("fp32_dest_acc_en", "bool", None,
           "accumulate in float32 instead of bfloat16; unset takes ttnn's choice per op", "tt-xla",
           levels={0: True}),
    Option("experimental_enable_fusing_conv2d_with_multiply_pattern", "bool", False,
           "fold a multiply (batch norm) into the weights of the convolution before it", "tt-xla",
           levels=_OFF_FROM_1),
    Option("backend", "choice", "default",
           "codegen_py writes a ttnn script to export_path as well; the others execute", "tt-xla",
           choices=("default", "ttnn_flatbuffer", "codegen_cpp", "codegen_py",
                    "codegen_load_py")),
    Option("enable_trace", "bool", False,
           "record the device commands at the second call and replay them after", "tt-xla"),
    Option("export_path", "text", "", "folder that receives the program of each graph", "tt-xla"),
    Option("export_model_name", "text", "", "file prefix in export_path; _g<N> is appended",
           "tt-xla"),
    Option("export_tensors", "bool", False, "write weights beside an exported program", "tt-xla"),
    Option("enable_const_eval", "bool", True,
           "compute what depends only on weights and constants once", "tt-xla"),
    Option("enable_const_eval_on_cpu", "bool", True,
           "const-eval in float32 on the host instead of on the chip", "tt-xla"),
    Option("enable_const_eval_inputs_to_system_memory", "bool", True,
           "keep inputs of const-eval in host memory, not in DRAM", "tt-xla",
           without_effect="they are always kept in host memory"),
    Option("experimental_enable_permute_matmul_fusion", "bool", True,
           "turn a transpose before a matmul into the matmul's transpose flag", "tt-xla"),
    Option("experimental_enable_dram_space_saving_optimization", "bool", False,
           "free DRAM tensors at their last use", "tt-xla",
           without_effect="always done"),
    Option("enable_create_d2m_subgraphs", "bool", False,
           "direct-to-metal subgraphs", "tt-xla",
           without_effect="programs are made of ttnn ops only"),
    Option("codegen_try_recover_structure", "bool", False, "recover modules in generated code",
           "tt-xla",
           without_effect="the backend generates no code"),
    Option("codegen_split_files", "bool", False, "split generated code into files", "tt-xla",
           without_effect="the backend generates no code"),
    Option("ttnn_perf_metrics_enabled", "bool", False,
           "write counts of sharded, spilled and host ops as JSON", "tt-xla"),
    Option("ttnn_perf_metrics_output_file", "text", "",
           "where to; _<graph> is put before the extension", "tt-xla"),
    Option("dry_run", "bool", False, "compile and cost, but do not execute; outputs are zeros",
           "tt-xla"),
    Option("target_module", "bool", False, "generate a module instead of a script", "tt-xla",
           without_effect="the backend generates no code"),
    # --- options={} of tt-xla's torch.compile backend
    Option("tt_enable_torch_fx_fusion_pass", "bool", True,
           "fusion on the FX graph; ops of the program are fused by enable_fusing alone",
           "tt-xla", aliases=("tt_enable_fusion_passes",)),
    Option("tt_enable_composite_ops", "bool", True,
           "keep gelu, layer norm and the like whole", "tt-xla",
           without_effect="ops that the chip has are always kept whole"),
    Option("tt_experimental_compile", "bool", True, "tt-xla's newer compile path", "tt-xla",
           without_effect="there is one compile path"),
    Option("tt_legacy_compile", "bool", False, "tt-xla's older compile path", "tt-xla",
           without_effect="there is one compile path"),
    Option("tt_lazy_execution", "bool", False, "collect calls and run them later", "tt-xla",
           without_effect="calls run at once"),
    Option("tt_use_aot_autograd", "bool", False, "trace forward and backward together", "tt-xla",
           without_effect="only inference graphs are compiled"),
    # --- the guides' environment
    Option("trace_region_size", "int", None,
           "bytes of DRAM for traces; unset is sized for you", "guides",
           env="TT_RUNTIME_TRACE_REGION_SIZE", minimum=0),
    Option("enable_program_cache", "bool", True, "reuse programs between calls", "guides",
           env="TT_RUNTIME_ENABLE_PROGRAM_CACHE"),
    # --- ours
    Option("chip", "chip", "n150", "the board to compile for", "temper", env="TEMPER_CHIP",
           choices=("e75", "e150", "n150", "n300", "p100", "p150")),
    Option("fallback", "bool", True,
           "run ops without a device lowering on the host; false makes them an error", "temper",
           env="TEMPER_FALLBACK"),
    Option("enable_fusing", "bool", False, "all fusion patterns", "temper", levels=_OFF_FROM_1,
           aliases=("enable_auto_fusing",)),
    Option("enable_conv_weight_preparation", "bool", False,
           "prepare convolution weights once instead of at every call", "temper",
           levels=_OFF_FROM_1),
    Option("enable_layout_optimization", "bool", False,
           "keep convolutions channels-last and drop inverse data movement", "temper",
           levels=_OFF_FROM_1),
    Option("enable_sram", "bool", False, "place tensors in SRAM where it pays", "temper",
           levels={0: False, 1: False, 2: True}),
    Option("enable_dram_shards", "bool", False,
           "weights of matmuls with one row of tiles over the DRAM banks, where it pays", "temper",
           levels={0: False, 1: False, 2: True}, aliases=("dram_sharded_weights",)),
    Option("sram_usage_cap", "float", 0.95, "share of a core's SRAM that tensors may use",
           "temper", minimum=0.0, maximum=1.0),
    Option("target", "choice", "virtual",
           "what runs the program: the virtual chip, a card through ttnn, or the card if there is "
           "one (auto)", "temper", env="TEMPER_TARGET", choices=("virtual", "ttnn", "auto")),
    Option("cost_data", "text", "",
           "file of cost constants corrected for your card (temper calibrate --from PROFILE -o "
           "FILE); modelled times are then labelled with its name", "temper",
           env="TEMPER_COST_DATA"),
    Option("l1_small_size", "int", 65_536,
           "bytes per core kept for the index tables of convolutions and pools, which ttnn refuses "
           "to run without", "temper", minimum=0),
    Option("activation_dtype", "format", "auto",
           "format of activations; auto keeps the model's own", "temper",
           choices=("auto", "float32", "bfloat16", "bfloat8_b")),
    Option("conv_weight_dtype", "format", "",
           "format of all convolution weights and their biases; unset keeps the model's own",
           "temper", choices=("", "bfloat8_b", "bfloat4_b")),
    Option("weight_dtype_overrides", "overrides", None,
           "formats per weight by name pattern, as apply_weight_dtype_overrides takes them",
           "temper"),
    Option("max_context", "int", None,
           "tokens that a generative model's cache holds for each user; unset takes what a call "
           "needs, rounded up, and grows", "temper", minimum=1),
    Option("exact_accumulation", "bool", False,
           "sum as the chip does: a bfloat16 accumulator is rounded at every 16-deep step; off "
           "sums in float32 on this host, faster and too good for long sums", "temper",
           env="TEMPER_EXACT_ACCUMULATION"),
    Option("compile_cache", "bool", True, "keep compiled programs on disk", "temper",
           env="TEMPER_CACHE"),
)  # fmt: skip

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
