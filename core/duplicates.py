"""core/duplicates.py: find problems that are duplicates, or leaks of a test set.

- Exact duplicates have the same text apart from case, blanks, punctuation and LaTeX spelling.
- Near duplicates share 80% of their runs of three words and symbols and have the same numbers,
  signs and functions. Problems that differ in a number, a + or a sine are not duplicates.
- A leak contains 80% of the runs of a test problem. The text around these runs may be anything,
  because a leak costs more than a lost problem. A short test problem must be contained as a whole
  sentence.
- If a run is in more than half of a file's questions, it belongs to an instruction and is ignored.
"""
import re
import unicodedata
from collections import Counter

LETTERS = str.maketrans({
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ",
    "√": r"\sqrt ", "°": r"^\circ ", "−": "-", "–": "-", "—": " ", "⁄": "/", "’": "'", "‘": "'"})
# Replacements, applied in this order to text in lower case, so that each thing has one spelling
SPELLINGS = [(re.compile(pattern), new) for pattern, new in (
    (r"\\\\(\[-?[\d.]+ *[a-z]{2}\])?", " "),         # line breaks
    (r"\\!", ""),                                    # a negative space
    (r"\\(?:(?:left|right|bigg?[lr]?|displaystyle|limits|q?quad|[lc]?dots)(?![a-z])|[,;:> ])", " "),
    (r"\\\(|\\\)|\\\[|\\\]|\\?\$|~|_{2,}", " "),     # math delimiters; ____ to fill in
    (r"\\(?:(?:text|math)(?:bf|it|rm)?|mbox|operatorname\*?)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dtc]frac(?![a-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\(le|ge|ne)q(?![a-z])", r"\\\1"), (r"\\bar(?![a-z])", r"\\overline"),
    # 1,000 and 1{,}000
    (r"(?<![\d.])\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)", lambda m: re.sub(r"\D", "", m[0])),
    (r"(?<!\\)\{\s*(\d+(?:\.\d+)?|[a-z])\s*\}", r" \1 "),  # x^{2}; but 2^{n+1} is not 2^n+1
    (r"(?<=[a-z]{2})-(?=[a-z]{2})", " "))]           # two-digit
WORD = re.compile(r"\d*\.?\d+|(?<=\d):(?=\d)|[^\W\d_]+|_|[^\w\s.,;:?\"“”`\\&]")
# Two texts that differ in a number or in one of these words are different problems
MARKS = set("""+ - < > le ge sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg
exp gcd lcm floor ceil lfloor lceil max min maximum minimum largest smallest greatest least even
odd half twice double triple""".split())
NUMBERS = {word: str(i % 19 + 2) for i, word in enumerate("""two three four five six seven eight
nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty second
third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth""".split())}
NUMBERS |= {word: word for word in """first thirty forty fifty sixty seventy eighty ninety hundred
hundredth thousand million""".split()}
# One changed word changes three runs of three words. In a question of 40 words the Jaccard index is
# 35 / 41 = 0.85 if one word differs, and 32 / 44 = 0.73 if two differ. So a limit of 0.8 drops a
# retouched sentence or an added hint, and keeps another question of the same kind.
RUN, NEAR = 3, 0.8
# A test problem with fewer than LONG runs can occur in another problem by chance
LONG, CLAUSES = 10, re.compile(r"(?<=[.!?:])\s+|\n+")


def normalize(text):
    """Return a question as a list of words, numbers and symbols, whatever its typesetting.

    r"Find $\\dfrac{1}{2}x^{10}$, if  x=1{,}000." -> find frac 1 2 x ^ 10 if x = 1000
    """
    # NFKC would turn 10² into 102, and 2½ into 21/2
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + m[0], text)
    text = re.sub("(?<=[0-9])(?=[¼½¾⅐-⅞])", " ", text)
    text = unicodedata.normalize("NFKC", text).lower().translate(LETTERS)
    for pattern, new in SPELLINGS:
        text = pattern.sub(new, text)
    return WORD.findall(text)


def without_braces(text):
    r"""Return a normalized question without braces: \overline{z_1} is \overline{z}_1."""
    return tuple(word for word in normalize(text) if word not in "{}")


def compact(words):
    """Join normalized words into one string, with blanks only between numbers."""
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(words))


def marks(words):
    """Return the numbers, signs and functions among words as one text; "tenth" becomes 10."""
    return " ".join(NUMBERS.get(w, w) for w in words
                    if w[0].isdigit() or w in MARKS or w in NUMBERS)


def runs(words, usual=frozenset()):
    """Return the set of runs of three words, minus those in `usual` unless that leaves none."""
    all_runs = {" ".join(words[i:i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
    return all_runs - usual or all_runs


def marked_runs(words, usual):
    """Return the runs, each prefixed with the question's marks.

    So questions with different marks share no run. If the marks are equal, the Jaccard index is
    that of the plain runs.
    """
    head = marks(words)
    return {f"{head}|{run}" for run in runs(words, usual)}


def usual_runs(texts):
    """Return the runs in more than half of the texts, which belong to an instruction.

    If there are fewer than four texts, the set is empty.
    """
    texts = list(dict.fromkeys(texts))
    sample = texts[::len(texts) // 1000 + 1]
    counts = Counter(run for words in sample for run in runs(words))
    return frozenset(run for run, n in counts.items() if len(sample) > 3 and 2 * n > len(sample))


def leak_finder(foreign):
    """Return a function of a question: the index of the first foreign question in it, or None."""
    # index every foreign question by each of its runs; these are few, so the shares can be exact
    by_run, sizes, keys, short = {}, [], {}, {}
    others = [without_braces(question) for question in foreign]
    usual = usual_runs(others)
    for j, words in enumerate(others):
        keys.setdefault(compact(words), j)
        sizes.append(len(runs(words, usual)))
        if sizes[j] < LONG:
            short.setdefault(words, j)
        for run in runs(words, usual):
            by_run.setdefault(run, []).append(j)

    def leak(question):
        words = without_braces(question)
        if compact(words) in keys:
            return keys[compact(words)]
        mine = runs(words)
        common = Counter(j for run in mine for j in by_run.get(run, ()))
        for j in sorted(common):
            whole = len(mine) + sizes[j] - common[j] if sizes[j] < LONG else sizes[j]
            if common[j] / whole >= NEAR:
                return j
        if short:  # "What is 2 + 2?" is part of many questions, so compare whole sentences
            pieces = [without_braces(piece) for piece in CLAUSES.split(question)]
            for i in range(len(pieces)):
                for k in range(i + 1, len(pieces) + 1):
                    j = short.get(tuple(word for piece in pieces[i:k] for word in piece))
                    if j is not None:
                        return j
        return None
    return leak


def twins(questions, foreign, near=True):
    """Return for each question None if it is kept, else (reason, i).

    reason: "against" if it contains foreign[i], "exact" or "near" if it duplicates questions[i].
    Questions are compared only with kept questions. So no two kept questions are duplicates, and
    every dropped duplicate has a kept twin. near: whether to look for near duplicates.
    """
    from tqdm import tqdm
    texts, leak = [tuple(normalize(q)) for q in questions], leak_finder(foreign)
    usual = usual_runs(texts)
    exact, by_run, sizes, results = {}, {}, {}, []  # the first three: kept questions only

    def twin(words, mine):
        if compact(words) in exact:
            return "exact", exact[compact(words)]
        common = Counter(j for run in mine for j in by_run.get(run, ()))
        for j in sorted(common):
            if common[j] / (len(mine) + sizes[j] - common[j]) >= NEAR:  # the Jaccard index
                return "near", j
        return None
    for i, words in enumerate(tqdm(texts, "duplicates", mininterval=1, disable=None)):
        mine = marked_runs(words, usual) if near else ()
        j = leak(questions[i])
        results.append(("against", j) if j is not None else twin(words, mine))
        if results[-1] is None:
            exact[compact(words)], sizes[i] = i, len(mine)
            for run in mine:
                by_run.setdefault(run, []).append(i)
    return results
