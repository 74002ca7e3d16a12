"""The embedded corpus and tokenizer (see ``make``)."""
