import os
from collections.abc import Iterator
from typing import Any

# bf16 products through AMX kill the process on some CPUs; must be set before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small tensors: threads only wait for each other
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

if not torch.cuda.is_available():
    # Kernels run on CPU tensors then, slowly; Triton looks at this when a kernel is defined.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is read from or left in the cache and the settings of whoever runs the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ.pop("DIPTYCH_CONFIG", None)


@pytest.fixture(scope="session")
def interpreted() -> Iterator[None]:
    """Loops to ends that a kernel computes: Triton 3.6 takes those from arrays of one number, NumPy 2.4 refuses to."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: type, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang_tensor", patched)
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a real, tiny, untrained BERT and its tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    words = "a red blue big small dog cat boat left of the on and two three ##s sits runs".split()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=5 + len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)
    return str(folder)
