"""What BERMo costs at inference: streamed as we do it, and stacked as it is usually written.

BERT-base's shape, batch 32 × 128, float32, 2 threads. Memory is all tensors of the process at the
worst moment of a forward, weights included; time is the median of interleaved forwards.
"""

from collections.abc import Callable

import torch
from _measure import interleaved, peak_bytes, show
from transformers import BertConfig, BertModel

from bermo_ray.models.backbone import find_stack
from bermo_ray.models.fusion import attach_fusion
from bermo_ray.trial import Fusion


def stacked(model: BertModel, weights: torch.Tensor) -> Callable[..., torch.Tensor]:
    """The usual form: keep all states, stack them, normalise, weigh, sum."""

    def forward(ids: torch.Tensor) -> torch.Tensor:
        states = torch.stack(model(ids, output_hidden_states=True).hidden_states)
        states = torch.nn.functional.layer_norm(states, states.shape[-1:])
        return torch.einsum("l,lbtd->btd", weights, states)

    return forward


def main() -> None:
    """Measures plain, streamed and stacked."""
    torch.set_num_threads(2)
    torch.manual_seed(0)
    plain = BertModel(BertConfig(), add_pooling_layer=False).eval()
    streamed = BertModel(BertConfig(), add_pooling_layer=False).eval()
    streamed.load_state_dict(plain.state_dict())
    bermo = attach_fusion(streamed, find_stack(streamed), Fusion(name="bermo")).eval()
    weights = bermo.mixing_weights()
    assert weights is not None
    ids = torch.randint(0, 30_000, (32, 128))
    stacked_forward = stacked(plain, weights)
    forms: dict[str, Callable[[], torch.Tensor]] = {
        "plain BERT": lambda: plain(ids).last_hidden_state,
        "BERMo, streamed": lambda: streamed(ids).last_hidden_state,
        "BERMo, stacked": lambda: stacked_forward(ids),
    }
    size = sum(p.numel() * p.element_size() for p in plain.parameters())
    with torch.inference_mode():
        difference = (forms["BERMo, streamed"]() - forms["BERMo, stacked"]()).abs().max().item()
        assert difference < 1e-4, f"the two forms differ by {difference}"
        memory = {name: size + peak_bytes(call) for name, call in forms.items()}
        seconds = interleaved(forms, rounds=9, warm=False)
    base = "plain BERT"
    rows = [
        [name, f"{memory[name] / 1e6:.0f} MB", f"{memory[name] / memory[base]:.3f}",
         f"{seconds[name]:.2f} s", f"{seconds[name] / seconds[base]:.3f}"]
        for name in forms
    ]  # fmt: skip
    ratios = {
        "memory_ratio": memory["BERMo, streamed"] / memory[base],
        "time_ratio": seconds["BERMo, streamed"] / seconds[base],
        "stacked_memory_ratio": memory["BERMo, stacked"] / memory[base],
        "stacked_time_ratio": seconds["BERMo, stacked"] / seconds[base],
    }
    show("BERMo at inference", ["", "peak memory", "ratio", "forward", "ratio"], rows, ratios)


if __name__ == "__main__":
    main()
