#!/usr/bin/env python3
"""Writes tests/fixtures/text/tokenizers.json.gz: small tokenizers and what the `tokenizers` package makes of texts.

    python3 -m venv venv && venv/bin/pip install tokenizers
    venv/bin/python scripts/make_tokenizer_fixtures.py

Each case is a tokenizer.json, and a list of texts with their ids (without and with special tokens), and the text that
the ids decode to (with and without special tokens). The vocabularies are learnt from the texts below, so that real
merges happen; every component that kv8 reads is in at least one case.
"""
import gzip
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog didn't mind; it's used to foxes, isn't it?",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
    "In 1969 the 3 astronauts travelled 384,400 km. I'LL BE BACK, WE'VE SEEN 'EM.",
    "Größe naïve café résumé Straße ÉCOLE – “quotes” … 你好，世界！ 日本語のテキスト 한국어 Привет мир",
    "aaaa aaaaaaaa abababab      spaces\t\ttabs\r\n\r\nlines\n\n\nend  ",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def texts():
    rng = random.Random(7)
    out = CORPUS + [
        "", " ", "  ", "\n", "a", "Hello world", " leading", "trailing ", "e\u0301 cafe\u0301", "\u212B \uFB01 ½ ① Ⅷ",
        "\u00a0nbsp\u3000wide\u2028line\u2029para\u0085next\u180Evowel", "\u0130stanbul İ ß ẞ ſ K", "'ſ it'ſ IT'S",
        "🙂👩‍👩‍👧‍👦🇫🇷", "\u0000\u0001\u001f", "<s>hi</s>", "a<tag>b <tag> c", "x <mask> y", "x<mask>", "<mask>\n\n<mask>",
        "word wordy sword word", "Word WORD word", "▁already▁there", "<0x41> <0xFF>", "12345678901", "a1b22c333",
        "under_score kebab-case CamelCase", "!?.,;: $+<=>^`|~", "\u0323\u0301\u0323a", "한\u1100\u1161\u11a8", "q" * 70,
        "<s><s> <s>", "the<tag>the", "  two  spaces  ", "A\tB\nC", "…""—", "x\u200dy\u200cz", "٣٤٥ १२३ 一二三",
    ]
    alphabet = "abcdeéßЖ你🙂 \n\t'0123.,!<s>▁\u0301\u00a0"
    out += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30))) for _ in range(40)]
    return out


def bpe(**options):
    return models.BPE(**options)


def train(tokenizer, size=420, byte_alphabet=False, special=(), limit=None):
    options = {"vocab_size": size, "special_tokens": list(special), "show_progress": False}
    if byte_alphabet:
        options["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
    if limit:
        options["limit_alphabet"] = limit
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(**options))
    return tokenizer


def byte_level(pre, normalizer=None, post=None, decoder=None, ignore_merges=False):
    tokenizer = Tokenizer(bpe(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder or decoders.ByteLevel()
    train(tokenizer, byte_alphabet=True, special=["<s>", "</s>"])
    if post:
        tokenizer.post_processor = post
    return tokenizer


def template():
    return processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>",
                                         special_tokens=[("<s>", 0), ("</s>", 1)])


def sentence_piece(**model):
    """Byte fallback, as Llama 2 and Gemma have it."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(bpe(unk_token="<unk>", byte_fallback=True, **model))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    return train(tokenizer, 560, special=tokens, limit=60)


def cases():
    split = lambda pattern, behavior, invert=False: pre_tokenizers.Split(Regex(pattern), behavior, invert)
    raw = lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "gpt2_prefix_space", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), post=processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0)))
    yield "byte_prefix_no_regex", byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)]))
    yield "llama3", byte_level(pre_tokenizers.Sequence([split(LLAMA3, "isolated"), raw()]), post=processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template()]), ignore_merges=True)
    yield "nfc", byte_level(pre_tokenizers.Sequence([split(LLAMA3, "isolated"), raw()]), normalizers.NFC())
    for form in ("NFD", "NFKC", "NFKD"):
        yield form.lower(), byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), getattr(normalizers, form)())
    yield "cleaning", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Replace(Regex(r"\s+"), " "), normalizers.Prepend("_")]))
    yield "strip_left", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Sequence([
        normalizers.Strip(left=True, right=False), normalizers.Replace("the", "THE")]))
    yield "byte_level_normalizer", byte_level(split(r"Ġ", "merged_with_next"), normalizers.ByteLevel())
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield "split_" + behavior, byte_level(pre_tokenizers.Sequence([split(r"[ aeiou]", behavior), raw()]))
        yield "split_invert_" + behavior, byte_level(pre_tokenizers.Sequence([split(r"\w+", behavior, True), raw()]))
    yield "split_string", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Split("th", "merged_with_previous", False), raw()]))
    yield "digits", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), raw()]))
    yield "digit_groups", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(False), raw()]))
    yield "punctuation", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), raw()]))
    yield "whitespace", byte_level(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), raw()]))
    yield "bert", byte_level(pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), raw()]))
    yield "delimiter", byte_level(pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("a"), raw()]))
    yield "oniguruma", byte_level(pre_tokenizers.Sequence([
        split(r"^\h{1,2}$|\d{2}+|(?m:b.c)|\s(?=\S)|(?i:école)|(?<=x)y|é++", "isolated"), raw()]))
    yield "thousands", byte_level(pre_tokenizers.Sequence([
        split(r"\p{N}+", "isolated"), split(r"(?=(\d{3})+(?!\d))", "isolated"), raw()]))

    added = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Lowercase(), post=template())
    added.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True, normalized=False)])
    added.add_tokens([AddedToken("<tag>", rstrip=True, normalized=False), AddedToken("Word", normalized=True),
                      AddedToken("sw", single_word=True, normalized=False), AddedToken("it", single_word=True),
                      AddedToken("<tag>b", normalized=False), AddedToken("é", normalized=False),
                      AddedToken("two  ", normalized=False)])
    yield "added_tokens", added

    gemma = sentence_piece(fuse_unk=True)
    gemma.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "gemma", gemma
    llama = sentence_piece(fuse_unk=True)
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
    yield "llama2", llama
    for scheme in ("always", "first", "never"):
        tokenizer = Tokenizer(bpe(unk_token="<unk>", fuse_unk=scheme == "first"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "never")
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme, split=scheme != "never")
        yield "metaspace_" + scheme, train(tokenizer, 300, special=["<unk>", "<s>", "</s>"], limit=40)
    strips = sentence_piece()
    strips.decoder = decoders.Sequence([decoders.Strip("a", 1, 0), decoders.Strip("▁", 1, 0)])
    yield "strip_decoder", strips
    late = sentence_piece()
    late.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁t", "[T]"),
                                      decoders.Replace(Regex(r"\d+"), "#"), decoders.Strip("▁", 3, 0)])
    yield "late_replace", late
    plain = Tokenizer(bpe(unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    yield "no_decoder", train(plain, 200, special=["<unk>", "<s>", "</s>"], limit=30)


def main():
    result = {}
    rng = random.Random(11)
    for name, tokenizer in cases():
        spec = json.loads(tokenizer.to_str())
        if name in ("gpt2", "llama2"):  # the older way to write merges
            spec["model"]["merges"] = [" ".join(pair) for pair in spec["model"]["merges"]]
        entry = {"tokenizer": spec, "encode": [], "decode": []}
        for text in texts():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            whole = tokenizer.encode(text, add_special_tokens=True).ids
            entry["encode"].append({"text": text, "ids": ids, "with_special": whole,
                                    "decoded": tokenizer.decode(whole, skip_special_tokens=False),
                                    "decoded_skipping": tokenizer.decode(whole, skip_special_tokens=True)})
        size = tokenizer.get_vocab_size()
        for _ in range(30):  # ids that no text has: broken UTF-8, bytes in runs
            start = rng.randrange(max(1, size - 8))
            ids = [rng.choice((rng.randrange(size), start + rng.randrange(8), rng.randrange(min(size, 259))))
                   for _ in range(rng.randint(1, 12))]
            entry["decode"].append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        result[name] = entry
    path = pathlib.Path(__file__).parent.parent / "tests/fixtures/text/tokenizers.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(result, ensure_ascii=True, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{path}: {len(result)} tokenizers, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
