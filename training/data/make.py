"""Makes the embedded corpus and tokenizer: ``python -m training.data.make [FOLDER]``.

The text is generated from the word lists below by a seeded grammar, so it is ours, free of rights, the same on every
machine, and regular enough for a small model to learn. The tokenizer is byte-level BPE trained on it, with the
2048 entries of TorchTitan's llama3 debug model. Needs ``tokenizers`` (part of the training stack), no network.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

SEED = 20250101
DOCUMENTS = 360
SENTENCES = (8, 16)
VOCABULARY = 2048
BEGIN, END = "<|begin|>", "<|end|>"


def words(text: str) -> list[str]:
    return text.split()


def phrases(text: str) -> list[str]:
    return text.replace("\n", "").split("|")


NOUNS = words("""lighthouse harbour keeper sailor engine river bridge clock garden letter window kitchen market teacher
painter violin shadow morning winter storm island valley forest mountain village ladder lantern compass anchor barrel
blanket candle castle chimney corner cottage desert driver farmer feather fountain glacier hammer journal kettle
library machine mirror needle orchard paper pebble pocket quarry railway ribbon saddle school signal silver stable
station summer table thunder ticket tower train turtle umbrella vessel wagon water whistle wheel workshop yard""")
ADJECTIVES = words("""old quiet narrow bright heavy distant patient hollow golden broken gentle crooked silent early
frozen careful empty famous green honest idle little modest northern pale quick red simple steady tall useful warm wide
wooden young clever dusty eastern grey humble proud rough smooth strange thin western white""")
VERBS = words("""watched carried followed painted repaired counted crossed forgot found guarded lifted measured opened
remembered reached sold turned visited answered borrowed built cleaned closed described drew emptied fetched gathered
heard held kept learned left loved moved named offered passed promised read sent showed studied taught waited""")
PLACES = phrases("""behind the hill|near the old mill|under the bridge|at the edge of town|across the bay|
by the northern gate|beside the canal|in the upper room|along the shore|between two fields|above the harbour|
outside the station""")
TIMES = phrases("""before dawn|after the storm|every spring|in the first week|late at night|on the third day|
during the long winter|at noon|when the bell rang|as the light failed|since last year|once again""")
LINKS = ["and then", "because", "although", "so", "while", "until", "but still", "and"]


def clause(chance: random.Random) -> str:
    """Somebody did something, somewhere or sometime."""
    actor = f"the {chance.choice(ADJECTIVES)} {chance.choice(NOUNS)}"
    one = chance.random() < 0.5
    thing = f"the {chance.choice(NOUNS)}" if one else f"{chance.randint(2, 99)} {chance.choice(NOUNS)}s"
    tail = chance.choice([chance.choice(PLACES), chance.choice(TIMES), ""])
    return " ".join(filter(None, [actor, chance.choice(VERBS), thing, tail]))


def sentence(chance: random.Random) -> str:
    """One or two clauses and a full stop."""
    text = clause(chance)
    if chance.random() < 0.4:
        text += f", {chance.choice(LINKS)} {clause(chance)}"
    return text[0].upper() + text[1:] + "."


def documents() -> list[str]:
    """The corpus, the same on every call."""
    chance = random.Random(SEED)
    return [" ".join(sentence(chance) for _ in range(chance.randint(*SENTENCES))) for _ in range(DOCUMENTS)]


def tokenizer_json(texts: list[str]) -> str:
    """A trained byte-level BPE tokenizer as the JSON text of ``tokenizer.json``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str(pretty=False))


def make(folder: Path) -> None:
    """Write ``corpus.jsonl``, ``tokenizer.json`` and ``tokenizer_config.json``."""
    texts = documents()
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "tokenizer.json").write_text(tokenizer_json(texts))
    settings = {"add_bos_token": True, "add_eos_token": True, "bos_token": BEGIN, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
