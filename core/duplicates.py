"""core/duplicates.py: find problems that are duplicates, or leaks of a test set.

A word run is three consecutive words of a question. A symbol counts as a word. If a word run is in
more than half of a file's questions, it belongs to an instruction and is ignored.
- Exact duplicates have the same text apart from case, blanks, punctuation and LaTeX spelling.
- Near duplicates share 80% of their word runs, and they have the same numbers, signs and functions.
  Problems that differ in a number, a + or a sine are not duplicates.
- A leak is a problem that contains 80% of the word runs of a test problem. The rest of the leak's
  text is ignored, because an overlooked leak costs more than a lost training problem. If the test
  problem is short, a stricter rule holds: the test problem must equal one or more whole sentences
  of the leak, or the two problems must share 80% of their word runs.
"""
import re
import unicodedata
from collections import Counter

LETTERS = str.maketrans({
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ",
    "√": r"\sqrt ", "°": r"^\circ ", "−": "-", "–": "-", "—": " ", "⁄": "/", "’": "'", "‘": "'"})
# Replacements, applied in this order to text in lower case, so that equal formulas and words get
# the same spelling
SPELLINGS = [(re.compile(pattern), new) for pattern, new in (
    (r"\\\\(\[-?[\d.]+ *[a-z]{2}\])?", " "),  # line breaks
    (r"\\!", ""),
    (r"\\(?:(?:left|right|bigg?[lr]?|displaystyle|limits|q?quad|[lc]?dots)(?![a-z])|[,;:> ])", " "),
    (r"\\\(|\\\)|\\\[|\\\]|\\?\$|~|_{2,}", " "),  # math delimiters, and ____ for a blank to fill in
    (r"\\(?:(?:text|math)(?:bf|it|rm)?|mbox|operatorname\*?)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\[dtc]frac(?![a-z])", r"\\frac"),
    (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
    (r"\\(le|ge|ne)q(?![a-z])", r"\\\1"), (r"\\bar(?![a-z])", r"\\overline"),
    # 1,000 and 1{,}000
    (r"(?<![\d.])\d{1,3}(?:(?:,|\{,\})\d{3})+(?!\d)", lambda m: re.sub(r"\D", "", m[0])),
    # drop the braces of x^{2}, but not of 2^{n+1}, which is not 2^n+1
    (r"(?<!\\)\{\s*(\d+(?:\.\d+)?|[a-z])\s*\}", r" \1 "),
    (r"(?<=[a-z]{2})-(?=[a-z]{2})", " "))]  # two-digit
WORD = re.compile(r"\d*\.?\d+|(?<=\d):(?=\d)|[^\W\d_]+|_|[^\w\s.,;:?\"“”`\\&]")
# Two texts that differ in a number or in one of these words are different problems
MARKS = set("""+ - < > le ge sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg
exp gcd lcm floor ceil lfloor lceil max min maximum minimum largest smallest greatest least even
odd half twice double triple two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty
ninety hundred thousand million first second third fourth fifth sixth seventh eighth ninth tenth
eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
twentieth hundredth""".split())
# One changed word changes three word runs. In a question of 40 words the Jaccard index is
# 35 / 41 = 0.85 if one word differs, and 32 / 44 = 0.73 if two differ. So the limit NEAR = 0.8
# drops a question of 40 words if one word was changed, and keeps it if two words were changed
RUN, NEAR = 3, 0.8
# If a test problem has fewer than LONG word runs, another problem may contain all of them by
# chance, so a stricter rule decides whether it is a leak
LONG, CLAUSES = 10, re.compile(r"(?<=[.!?:])\s+|\n+")


def normalize(text):
    """Return a question as a list of words, numbers and symbols that do not depend on typesetting.

    r"Find $\\dfrac{1}{2}x^{10}$, if  x=1{,}000." -> find frac 1 2 x ^ 10 if x = 1000
    """
    # before NFKC, separate ² and ½, because NFKC would turn 10² into 102 and 2½ into 21/2
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + m[0], text)
    text = re.sub("(?<=[0-9])(?=[¼½¾⅐-⅞])", " ", text)
    text = unicodedata.normalize("NFKC", text).lower().translate(LETTERS)
    for pattern, new in SPELLINGS:
        text = pattern.sub(new, text)
    return WORD.findall(text)


def without_braces(text):
    r"""Return a normalized question with its braces removed, as a tuple of words.

    So \overline{z_1} and \overline{z}_1 give the same words.
    """
    return tuple(word for word in normalize(text) if word not in "{}")


def compact(words):
    """Join normalized words into one string, with blanks only between numbers."""
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(words))


def runs(words, usual=frozenset()):
    """Return the set of word runs of `words` without those in `usual`.

    If that would leave none, return all word runs of `words`.
    """
    all_runs = {" ".join(words[i:i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
    return all_runs - usual or all_runs


def marked_runs(words, usual):
    """Return the word runs, each prefixed with the question's numbers, signs and functions.

    Two questions that differ in these have different prefixes, so they share no word run. Two
    questions that agree in these have equal prefixes, which do not change their Jaccard index.
    """
    marks = " ".join(word for word in words if word[0].isdigit() or word in MARKS)
    return {f"{marks}|{run}" for run in runs(words, usual)}


def usual_runs(texts):
    """Return the word runs in more than half of the texts. They belong to an instruction.

    If there are fewer than four texts, the set is empty.
    """
    texts = list(dict.fromkeys(texts))
    sample = texts[::len(texts) // 1000 + 1]
    counts = Counter(run for words in sample for run in runs(words))
    return frozenset(run for run, n in counts.items() if len(sample) > 3 and 2 * n > len(sample))


def common_runs(mine, by_run):
    """Return [(i, number of word runs in `mine` that question i has), ...], sorted by i.

    by_run: {word run: indices of the questions that have it}.
    """
    return sorted(Counter(i for run in mine for i in by_run.get(run, ())).items())


def leak_finder(foreign):
    """Return a function leak(question).

    It returns the index of a question in `foreign` that `question` contains, or None if it contains
    none of them.
    """
    by_run, sizes, short = {}, [], {}
    others = [without_braces(question) for question in foreign]
    usual = usual_runs(others)
    for i, words in enumerate(others):
        own = runs(words, usual)
        sizes.append(len(own))
        if len(own) < LONG:
            short.setdefault(compact(words), i)
        for run in own:
            by_run.setdefault(run, []).append(i)

    def leak(question):
        mine = runs(without_braces(question))
        for i, common in common_runs(mine, by_run):
            whole = sizes[i] if sizes[i] >= LONG else len(mine) + sizes[i] - common
            if common / whole >= NEAR:
                return i
        if short:  # "What is 2 + 2?" is part of many questions, so compare whole sentences
            pieces = [without_braces(piece) for piece in CLAUSES.split(question)]
            for first in range(len(pieces)):
                words = ()
                for piece in pieces[first:]:
                    words += piece
                    if compact(words) in short:
                        return short[compact(words)]
                    if len(words) > 2 * LONG:  # too long to equal a short problem
                        break
        return None
    return leak


def twins(questions, foreign, near=True):
    """Return for each question None if it is kept, else (reason, i).

    The reason is "against" if the question contains foreign[i], and "exact" or "near" if it
    duplicates questions[i]. near: whether to look for near duplicates. Questions are compared only
    with kept questions. So no two kept questions are duplicates, and every dropped duplicate has a
    kept twin.
    """
    from tqdm import tqdm
    texts, leak = [tuple(normalize(q)) for q in questions], leak_finder(foreign)
    usual = usual_runs(texts)
    # only kept questions are added to `exact`, `by_run` and `sizes`
    exact, by_run, sizes, results = {}, {}, {}, []
    for i, words in enumerate(tqdm(texts, "duplicates", mininterval=1, disable=None)):
        mine = marked_runs(words, usual) if near else ()
        # Jaccard index: the number of shared word runs divided by the number in the union, which
        # is len(mine) + sizes[j] - common
        alike = (j for j, common in common_runs(mine, by_run)
                 if common / (len(mine) + sizes[j] - common) >= NEAR)
        if (j := leak(questions[i])) is not None:
            results.append(("against", j))
        elif compact(words) in exact:
            results.append(("exact", exact[compact(words)]))
        elif (j := next(alike, None)) is not None:
            results.append(("near", j))
        else:
            results.append(None)
            exact[compact(words)], sizes[i] = i, len(mine)
            for run in mine:
                by_run.setdefault(run, []).append(i)
    return results
