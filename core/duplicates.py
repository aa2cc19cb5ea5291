"""core/duplicates.py: find problems that are duplicates, or leaks of a test set.

- Duplicates have the same text except for case, blanks, punctuation and LaTeX spelling.
- A leak contains 80% of the word runs (three consecutive words or symbols) of a test problem,
  without runs of an instruction, which more than half of the test problems have. With a short test
  problem, which others may contain, it must share 80% of the word runs of both.
"""
import re
import unicodedata
from collections import Counter, defaultdict

LETTERS = str.maketrans({
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ",
    "√": r"\sqrt ", "°": r"^\circ ", "−": "-", "–": "-", "—": " ", "⁄": "/", "’": "'", "‘": "'"})
# Replacements, applied in this order to text in lower case
SPELLINGS = [(re.compile(pattern), new) for pattern, new in (
    (r"\\\\(\[-?[\d.]+ *[a-z]{2}\])?", " "),  # line breaks
    (r"\\!", ""),
    (r"\\(?:(?:left|right|bigg?[lr]?|displaystyle|limits|q?quad|[lc]?dots)(?![a-z])|[,;:> ])", " "),
    (r"\\[()\[\]]|\\?\$|~|_{2,}", " "),  # math delimiters, and ____ for a blank to fill in
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
# One changed word changes three word runs, so a question of 40 words may differ in one word
RUN, NEAR = 3, 0.8
LONG = 10  # another problem may contain fewer word runs by chance


def normalize(text):
    """Return the words, numbers and symbols of a question, without its typesetting.

    r"Find $\\dfrac{1}{2}x^{10}$, if  x=1{,}000." -> find frac 1 2 x ^ 10 if x = 1000
    """
    # NFKC would turn 10² into 102 and 2½ into 21/2
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + m[0], text)
    text = re.sub("(?<=[0-9])(?=[¼½¾⅐-⅞])", " ", text)
    text = unicodedata.normalize("NFKC", text).lower().translate(LETTERS)
    for pattern, new in SPELLINGS:
        text = pattern.sub(new, text)
    return WORD.findall(text)


def without_braces(words):
    r"""Return normalized words without braces, so that \overline{z_1} equals \overline{z}_1."""
    return tuple(word for word in words if word not in "{}")


def compact(words):
    """Join normalized words into one string, with blanks only between numbers."""
    return re.sub(r"(?<!\d) | (?!\d)", "", " ".join(words))


def runs(words, usual=frozenset()):
    """Return the set of word runs of `words` without those in `usual`, unless none is left."""
    all_runs = {" ".join(words[i:i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
    return all_runs - usual or all_runs


def twins(questions, foreign):
    """Return for each question "against" if it contains a problem in `foreign`, the index of the
    first question with the same text if that is an earlier one, else None."""
    texts = list({without_braces(normalize(question)) for question in foreign})
    # an instruction has the word runs in more than half of four or more texts
    counts = Counter(run for words in texts for run in runs(words))
    usual = {run for run, n in counts.items() if len(texts) > 3 and 2 * n > len(texts)}
    own_runs, by_run = [runs(words, usual) for words in texts], defaultdict(list)
    for i, own in enumerate(own_runs):
        for run in own:
            by_run[run].append(i)
    seen, found = {}, []
    for j, question in enumerate(questions):
        words = normalize(question)
        mine = runs(without_braces(words), usual)
        leak = False
        for i, common in Counter(i for run in mine for i in by_run.get(run, ())).items():
            own = own_runs[i]
            leak |= common / len(own if len(own) >= LONG else own | mine) >= NEAR
        first = "against" if leak else seen.setdefault(compact(words), j)
        found.append(None if first == j else first)
    return found
