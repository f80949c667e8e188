"""What collect_env of PyTorch and vLLM and check_env of SGLang print for an issue: versions, the driver, GPU names.

The topology matrix in it is read as nvidia-smi topo -m.
"""

from gpucheck.imports._kind import Kind, messages_in
from gpucheck.imports._text import regex, spans
from gpucheck.imports.nccl.tests import leftovers
from gpucheck.imports.nvidia_smi._fields import named, part
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

NAME = "environment-report"
MOST_GPUS = 128
# Images state their content, clusters their network; neither changes the paths in one host.
NO_SWITCH = {"NCCL_VERSION", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_HCA"}
# Each of these lines identifies such a report.
BEGIN = regex(
    r"^\s{0,8}(?:PyTorch version: \d|Collecting environment information|CUDA used to build PyTorch: "
    r"|Is (?:CUDA|XNNPACK|debug build) ?(?:available)?: (?:True|False)|CUDA available: (?:True|False)"
    r"|(?:GPU models and configuration|Nvidia driver version|cuDNN version): ?"
    r"|Versions of relevant libraries:|vLLM (?:Version|Build Flags|Info)|\[(?:pip3?|conda)\] [\w.-]{1,80}"
    r"|CUDA Archs: |CUDA_MODULE_LOADING set to: "
    r"|ROCM Version\s{0,4}: |={8,80} ?(?:System|PyTorch|Python|CUDA / GPU|vLLM|CPU) (?:Info|Environment))"
)
# Lines between them, which mean little elsewhere.
KEYS = (
    "ROCM used to build PyTorch|OS|GCC version|Clang version|CMake version|Libc version|Python version|"
    "Python platform|CUDA runtime version|HIP runtime version|MIOpen runtime version|Neuron SDK Version|"
    "Python|CUDA_HOME|NVCC|PyTorch|sgl_kernel|sglang|flashinfer|flashinfer_python|triton|transformers|torchao|numpy|"
    "aiohttp|fastapi|hf_transfer|huggingface_hub|interegular|modelscope|orjson|outlines|packaging|psutil|pydantic|"
    "python-multipart|multipart|pyzmq|zmq|uvicorn|uvloop|vllm|xgrammar|openai|tiktoken|anthropic|litellm|decord|"
    "CUDA Driver Version|GPU Topology|NVIDIA Topology|CPU|Hypervisor vendor|ulimit soft"
)
LSCPU = (
    r"Architecture|CPU op-mode\(s\)|Address sizes|Byte Order|CPU\(s\)|On-line CPU\(s\) list|Vendor ID|Model name|"
    r"CPU family|Model|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)|Stepping|Frequency boost|"
    r"CPU(?:\(s\) scaling)? (?:max |min )?MHz|BogoMIPS|Flags|Virtualization(?: type)?|L1[di] cache|L[23] cache|"
    r"NUMA node(?:\(s\)|\d{1,3} CPU\(s\))|Vulnerability [\w ]{3,40}"
)
GPU_LINE = regex(
    r"^\s{0,8}(?:GPU models and configuration:\s{1,4})?GPU (\d{1,3}(?:,\d{1,3}){0,127}): ([^\n(:]{2,80}?)"
    r"(?: \(UUID: [^)]{1,60}\))?\s*$"
)
MIG = regex(r"^\s{1,12}MIG \S{1,30}\s+Device\s+\d{1,3}:")
VARIABLE = regex(r"^([A-Z][A-Z0-9_]{3,40})=(\S.{0,400})$")
INSIDE = regex(
    rf"^\s{{0,8}}(?:(?:{KEYS}):(?: |$)|(?:{LSCPU}):\s|GPU \d{{1,3}}(?:,\d{{1,3}}){{0,127}}(?: Compute Capability)?: \S"
    rf"|/\S{{1,200}}/libcudnn\S{{0,80}}\s*$|{VARIABLE.pattern[1:]}|(?:={{8,}}|-{{8,}})\s*$)|{MIG.pattern}"
)
DRIVER = regex(r"^\s{0,8}(?:Nvidia driver version|CUDA Driver Version)\s{0,4}: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)\s*$")


def parse(lines: list[str]) -> Part | None:
    if not any(BEGIN.match(line) for line in lines):
        return None
    names: dict[int, str] = {}
    driver = None
    for line in lines:
        if match := GPU_LINE.match(line):
            for index in map(int, match[1].split(",")):
                if index < MOST_GPUS:
                    names.setdefault(index, match[2].strip())
        elif match := DRIVER.match(line):
            driver = driver or match[1]
    gpus = [named(at, names[at]) for at in sorted(names)]
    messages = messages_in(NAME, lines)
    pairs = [(match[1], match[2]) for line in lines if (match := VARIABLE.match(line))]
    environment = leftovers([pair for pair in pairs if pair[0].startswith("NCCL_") and pair[0] not in NO_SWITCH])
    if not gpus:
        seen = Observations(host=ObservedHost(driver=driver), environment=environment)
        return Part(facts=Facts(observed=seen), messages=messages, looked_at=("versions in an environment report",))
    return part(gpus, driver=driver, messages=messages, environment=environment)


KIND = Kind(
    NAME,
    "the output of collect_env (PyTorch, vLLM) or check_env (SGLang)",
    parse,
    loose=True,
    hints=("PyTorch", "CUDA available", "relevant libraries", "[pip", "[conda]", "vLLM ", "driver version: "),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE),
)
