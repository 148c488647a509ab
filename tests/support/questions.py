"""Questions about one context, encoded."""

import pyarrow as pa

from bermo_ray.models import backbone
from bermo_ray.tasks import registry
from bermo_ray.tasks.encoded import EncodedRows
from bermo_ray.tasks.encoding import encode_rows

CONTEXT = "the old dog chased the young cat in the garden . the man slept ."


def encode_questions(*answers: list[str], context: str = CONTEXT, length: int = 64) -> EncodedRows:
    rows = pa.table(
        {
            "text": ["who slept ?"] * len(answers),
            "text_pair": [context] * len(answers),
            "answers": list(answers),
            "answer_starts": [[context.index(a) for a in texts] for texts in answers],
        }
    )
    tokenizer = backbone.load_tokenizer("embedded")
    return encode_rows(registry.get_task("answer_span"), rows, tokenizer, length)
