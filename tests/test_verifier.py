"""The verifier: right on pairs with known verdicts, and not to be hung, killed, filled or misled by
what a model writes."""
import functools
import inspect
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

import config
import verifier
from conftest import ROOT
from config import BadInput
from core import math_answers, sandbox
from core.sandbox import ERROR, TIMEOUT

# Pairs with known verdicts: gold, then == an answer that is right, != one that is not. Most were
# written before the verifier saw
# them, and those that it then got wrong were mended or stand below as limits
AGREEMENT = r"""
# integers
42 == 42 == 42. == $42$ == \textbf{42} == \mathbf{42} != 24
-7 == -7 != 7
7 == +7 == 007
0 == -0
$42$ == 42
4 == 2+2 == 2\cdot 2
1 != 11
7 == =7 == \approx 7 == \therefore 7 == \large 7 == \text{7} != \approx 8
# orders and words
ABC == ABC == \text{ABC} == \mathrm{ABC}. != CBA != ACB != AB
\text{BCAD} == BCAD != DACB
STOP == STOP != POTS
AB == BA
# fractions
\frac{1}{2} == \dfrac{2}{4} == 1/2 == 0.5
\frac12 == \frac{1}{2}
\frac{3}{4} != \frac{4}{3}
-\frac{1}{2} == \frac{-1}{2} == \frac{1}{-2}
\frac{1}{3} == 0.\overline{3} != 0.333
\frac{2}{3} != 0.67
\frac{22}{7} != \pi
3 == \frac{9}{3}
\frac{1}{\frac{2}{3}} == \frac{3}{2}
\tfrac{7}{8} == 0.875
-3/4 == \frac{3}{-4}
# mixed numbers
1\frac{1}{2} == \frac{3}{2}
\frac{7}{3} == 2\frac{1}{3}
2\frac{1}{3} != \frac{2}{3}
3\frac{1}{4} == 3.25
# decimals
0.5 == 0.50 == .5
2.50 == 2.5
3.14 != \pi
3.14159 != 3.14160
1.0 == 1
-0.25 == -\frac{1}{4}
0.1 != 0.01
1.5 != 1,5
# thousands
1234 == 1,234 == 1{,}234 == 1\,234 != 1,243
1,234,567 == 1234567
10000 == 10\,000
1000000 == 1{,}000{,}000
# scientific
1200 == 1.2 \times 10^3
3 \times 10^{-4} == 0.0003
6.02\times 10^{23} == 6.02 \cdot 10^{23}
1.2\times 10^3 != 1.2\times 10^4
10^6 == 1000000
# percent
50\% == \frac{1}{2} == 0.5
12.5\% == 12.5\%
25\% == 25 \text{ percent} != 26\%
\frac{1}{4} == 25\%
# units
5 == 5\text{ cm}
5\text{ cm} == 5 != 6\text{ cm}
12 \text{ cm}^2 == 12
30 \text{ mph} == 30\text{ mph}
7 == 7 \mathrm{~kg}
3 == 3\text{ apples}
8 == 8 \text{ hours}
# currency
5 == \$5
\$12.50 == 12.5
\$5 != \$6
1500 == \$1{,}500 == \$1,500
# degrees
45 == 45^\circ
45^\circ == 45 != 54^\circ
45^{\circ} == 45^\circ
90 == 90\text{ degrees}
# surds
\sqrt{8} == 2\sqrt{2}
\frac{1}{\sqrt{2}} == \frac{\sqrt{2}}{2}
\sqrt{2} == \sqrt 2 != 1.414
3\sqrt{5} == \sqrt{45}
\sqrt{2}+\sqrt{3} == \sqrt{5+2\sqrt{6}} != \sqrt{5}
2\sqrt{3} != 3\sqrt{2}
\sqrt[3]{16} == 2\sqrt[3]{2}
\sqrt[3]{-8} == -2
\frac{1+\sqrt{5}}{2} == \frac{\sqrt{5}+1}{2} != \frac{1-\sqrt{5}}{2}
\frac{1}{\sqrt{3}-1} == \frac{\sqrt{3}+1}{2}
2^{1/2} == \sqrt{2}
# constants
2\pi == \pi \cdot 2 != 6.28
\frac{\pi}{4} == \pi/4
e^2 == e^{2}
e != 2.718
\pi^2 != 2\pi
# logs
\ln 8 == 3\ln 2
\log_2 8 == 3
\log_{10} 1000 == 3
\ln(6) == \ln 2+\ln 3
\ln 6 != \ln 2 \ln 3
\frac{\ln 3}{\ln 2} == \log_2 3
e^{\ln 5} == 5
# factorials
120 == 5!
5! == 4! \cdot 5 != 6!
10 == \binom{5}{2}
\binom{10}{3} == \binom{10}{7} != \binom{10}{4}
\frac{10!}{8!} == 90
# powers
2^{10} == 1024 != 10^2
2^{-3} == \frac{1}{8}
2^{100} == 4^{50} != 2^{101}
9^{3/2} == 27
# polynomials
x^2+2x+1 == (x+1)^2 != (x+2)^2
(x-1)(x+1) == x^2-1
x^2-1 != x^2+1
2x+3 == 3+2x != 2y+3
x^3-x == x(x-1)(x+1)
a^2-b^2 == (a-b)(a+b)
\frac{x^2-1}{x+1}+1 == x
\frac{1}{x}+\frac{1}{y} == \frac{x+y}{xy}
3x^2 != 3x^3
xy == yx
(x+y)^3 == x^3+3x^2y+3xy^2+y^3
# trig
\sin^2 x+\cos^2 x == 1
\sin 2x == 2\sin x\cos x
\cos 2x == 1-2\sin^2 x
\tan x == \frac{\sin x}{\cos x}
\sin x != \cos x
\sin\frac{\pi}{6} == \frac{1}{2}
\arctan 1 == \frac{\pi}{4}
\cos\frac{\pi}{5} == \frac{1+\sqrt{5}}{4}
# complex
3+4i == 4i+3 != 3-4i
i^2 == -1
\frac{1}{i} == -i
e^{i\pi} == -1
(1+i)^2 == 2i
2i != 2
\sqrt{-4} == 2i
# sets
\{1,2,3\} == \{3,2,1\} == 1,2,3 != \{1,2\}
\{1,2\} == \{1,2,2\} != \{1,3\}
\left\{1,2\right\} == \{2,1\}
\{\frac{1}{2},3\} == \{3,0.5\}
\{a,b\} == \{b,a\}
\{\sqrt{2},-\sqrt{2}\} == \{-\sqrt{2},\sqrt{2}\}
\{0\} == 0
# lists
1,2,3 == 3,2,1
1, 2 == 1 \text{ and } 2 == 2\text{ or }1
1,2 != 1,3 != 1
1 != 1,2
-1, 4 == 4, -1
x=1, x=2 == 1,2
2,3,5,7 != 2,3,5
# tuples
(1,2) == (1,2) != (2,1)
(1,2,3) == (1,2,3) != (3,2,1)
(\frac{1}{2},3) == (0.5,3)
\left(3,\frac{\pi}{2}\right) == (3,\pi/2)
(1,2),(3,4) == (3,4),(1,2) != (1,2),(4,3)
(x,y)=(1,2) == (1,2)
# vectors and matrices
\begin{pmatrix}1&2\\3&4\end{pmatrix} == \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} != \begin{pmatrix}1&3\\2&4\end{pmatrix}
\begin{pmatrix}1\\2\end{pmatrix} == \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}1\\2\end{pmatrix} != \begin{pmatrix}2\\1\end{pmatrix}
\begin{pmatrix}\frac{1}{2}&0\\0&1\end{pmatrix} == \begin{pmatrix}0.5&0\\0&1\end{pmatrix}
\begin{pmatrix}1&2\end{pmatrix} != \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}2&0\\0&2\end{pmatrix} == 2\begin{pmatrix}1&0\\0&1\end{pmatrix}
\left(\begin{array}{cc}1&2\\3&4\end{array}\right) == \begin{pmatrix}1&2\\3&4\end{pmatrix}
\langle 1,2,3\rangle == (1,2,3)
\begin{pmatrix}x\\y\end{pmatrix} != \begin{pmatrix}x\\z\end{pmatrix}
# intervals
[0,1] == [0,1] != (0,1) != [0,2]
[0,1) != [0,1]
[0,\infty) == [0,+\infty)
(-\infty,2] != (-\infty,2)
[0.5,1] == [\frac{1}{2},1]
(0,1) == \left(0,1\right)
(-\infty,1)\cup(2,\infty) == (2,\infty)\cup(-\infty,1) != (-\infty,1]\cup[2,\infty)
[1,2]\cup[2,3] == [1,3]
(-\infty,\infty) == \mathbb{R}
(0,2)\setminus\{1\} == (0,1)\cup(1,2)
# inequalities
x>2 == 2<x != x\geq 2 != x<2
x\geq 2 == x\ge 2
1<x<2 == (1,2) == 1<x<1+1 != 1<x<3
a<b<c == a<b<\frac{2c}{2} != a<b<2c
x\leq 3 == (-\infty,3]
(1,2) == 1<x<2
# equations
5 == x=5 == 2+3=5
x=5 == 5 != x=6 != y=5
y=2x+1 == y=1+2x == 2x+1 == 2x-y+1=0 != y=2x-1
x^2+y^2=1 == y^2+x^2=1 != x^2+y^2=2
f(x)=x^2 == x^2
12 == n=12
2 == x\approx 2
# infinity and nothing
\infty == +\infty == \text{infinity} != -\infty != 0
\emptyset == \varnothing == \{\} != 0
# plus-minus
\pm 2 == 2,-2 == \mp 2 != 2
2,-2 == \pm 2
x=\pm 2 == \pm 2
1\pm\sqrt{2} == 1+\sqrt{2},1-\sqrt{2}
# text
\text{even} == even != \text{odd}
\text{Yes} == yes != \text{No}
\text{Monday} == \text{Monday} != \text{Friday}
Alice == \text{Alice}
\text{no solution} == \text{No solution}
\text{ellipse} == \text{Ellipse.}
\text{isosceles triangle} == \text{isosceles triangle}
\text{True} != \text{False}
# letters
B == \text{B} == (B) == \textbf{(B)} != C
\text{(B)} == B
\text{A} != \text{D}
E == E == (E)
C == \mathrm{C} == \text{C.}
# dates and times
3:30 == 3:30 != 3:31
3\text{:}30 == 3:30
3:30\text{ PM} == 3:30\text{ p.m.}
\text{March 5} == \text{March 5} != \text{March 6}
2024 == \text{2024}
# ratios
1:2 == 1:2 == 2:4 != 2:1
3:4:5 == 3:4:5
# sums
\sum_{k=1}^{10}k == 55 != 54
\int_0^1 x\,dx == \frac{1}{2}
\lim_{x\to 0}\frac{\sin x}{x} == 1
|{-3}| == 3
\lfloor 3.7\rfloor == 3
\prod_{k=1}^{4}k == 24
# systems
(1,2) == \begin{cases} x=1\\ y=2\end{cases}
2 != \begin{cases} x=1\\ y=2\end{cases}
x=1,y=2 == (1,2) == y=2,x=1 != x=2,y=1
5 == x=2+3=5
(0,1) == x\in(0,1)
\{1,2\} == x\in\{1,2\}
# further
x == \frac{2x}{2}
\frac{2x}{2} == x
2.5 == 2\frac12
-0.5 == \frac{1}{\sqrt[3]{-8}}
3-2i != 3+2i
(1,i) == (1,i)
i,-i == \pm i
\sum_{i=1}^{4} i == 10
i != -i
2+i^2 == 1
\pi i == i\pi
0 != 10^{-20}
10^{20} != 10^{20}+1
1 == 0.\overline{9}
\frac{4}{33} == 0.\overline{12}
\frac{5}{6} == 0.8\overline{3}
(5,3) != (3,5)
(2,1) != (5,3)
12 == 12 \text{ square units}
x+y == y+x.
\{1, 2\}. == \{2,1\}
3 == \left(3\right) == \boxed{3}
7 == {7}
1/2 == \left(\frac{1}{2}\right)
100 == 10^2\text{ m}^2
# bases
101_2 == 101_2 == 101_{2}
# equations that hold always or never
x^{2}-12 x+39=0 == 39-12x+x^2=0 == x^2-12x=-39 == 2x^2-24x+78=0 == 0=x^2-12x+39 != N=n != 0=0
x^{2}-12 x+39=0 != 0=1 != x^2+1=0 != 1=1 != x=x != y^{2}-12 y+39=0 != 39=0
\log _{6}(216)=3 == \log_6 216 = 3 == 3=\log_6(216) != 0=0 != N=n != 3=3 != 1=1 != 0=1 != 3=6/2
\log _{6}(216)=3 != 6^3=216
6^3=216 == 216=6^3 == 6^{3}=216 != 216=216 != 0=0 != N=n != 2=2 != 6^2=36
x^2+121=0 == 121+x^2=0 == x^2=-121 == -x^2=121 != x^2+50=0 != N=n != 0=0 != x^2=1
(a+b)^2=a^2+2ab+b^2 == a^2+2ab+b^2=(a+b)^2 == (b+a)^2 = b^2+2ab+a^2 != 0=0 != N=n != a^2=a^2 != a=a
\sin^2 x+\cos^2 x=1 == 1=\sin^2 x+\cos^2 x != 0=0 != N=n != 1=1
\log_{10} 0.001=-3 == -3=\log_{10} 0.001 != 0=0 != -3=-3
e^{0}=1 != 0=0 != 1=1
x^2=-4 != \emptyset != \{\} != [0,0)
\log_{10} 0.001=-3 != \emptyset != \mathbb{R}
\emptyset == x^2<-1 == x\in\emptyset != 0<1 != 1<0 != x<x != x\le x
(-\infty,\infty) != 0<1 != 0=0 != x\le x
x^2=4 == 2,-2
10^{-2}=0.01 != 0=0
x^{2}+y^{2}=1 == 2x^2+2y^2=2 == y^2=1-x^2 != 0=0 != N=n != x^2+y^2=4
x^2+y^2=-1 == 2x^2+2y^2=-2 != N=n != 0=1
y=3x-2 == y=-2+3x == 3x-y-2=0 == y-3x+2=0 != N=n != 0=0 != y=3x+2
x=x+1 != 0=1 != N=n+5 != 0=0
|x|=-1 != 0=1 != N=n != |x|=-2
\sqrt{x}=-3 != 0=1 != N=n
3>2 == 2<3 != 1>0 != 5>4 != 0<1
5\ne 6 != 1\ne 2
x^2+1>0 != 1>0
A=\pi r^2 == A = r^2\pi != A=0 != 0=0
2x+3y=6 == 4x+6y=12 == y=2-\frac{2}{3}x != 2x+3y=7
x^2=-4 == x^2+4=0 != x^2=-5 != 0=1
3(x+2)=3x+6 != 0=0
4^{\frac{1}{2}}=2 == 2=4^{1/2} != 0=0
\frac{x^2}{4}+\frac{y^2}{9}=1 == 9x^2+4y^2=36 != N=n
# small numbers
\frac{1}{2004!} == 1/2004! != \frac{1}{2006!} != 0 != 0.0 != \frac{2}{2004!}
\frac{1}{2^{99}} == 2^{-99} == (1/2)^{99} != \frac{1}{2^{98}} != 0 != 0.0
\frac{2^{2005}+1}{3 \cdot 2^{2006}} == \frac{1}{6}+\frac{1}{3\cdot 2^{2006}}
\frac{2^{2005}+1}{3 \cdot 2^{2006}} != \frac{1}{3 \cdot 2^{2006}} != \frac16
\frac{2^{2005}+1}{3 \cdot 2^{2006}} != \frac{2^{2005}-1}{3 \cdot 2^{2006}}
\frac{1}{100!} != \frac{1}{101!} != 10^{-158} != 0
\frac{\pi}{2^{80}} != \frac{\pi}{2^{81}} != 0
\frac{x}{2^{99}} == x\cdot 2^{-99} != \frac{x}{2^{98}} != 0
\{1,\frac{1}{2^{99}}\} != \{1,\frac{1}{2^{98}}\}
(1,\frac{1}{2^{99}}) != (1,\frac{1}{2^{98}})
\begin{pmatrix}\frac{1}{2^{99}}&1\end{pmatrix} != \begin{pmatrix}\frac{1}{2^{98}}&1\end{pmatrix}
\left(\frac{1}{2}\right)^{100} == \frac{1}{2^{100}} != \left(\frac{1}{2}\right)^{101}
\left(\frac{1}{2}\right)^{100} != \left(\frac{1}{3}\right)^{100}
\sqrt{2}+10^{-30} != \sqrt{2}
\frac{1}{\binom{100}{50}} == \frac{50!\cdot 50!}{100!} != \frac{1}{\binom{100}{49}}
\left(\frac{5}{6}\right)^{300} != \left(\frac{5}{6}\right)^{301} != 0
e^{-100} == \frac{1}{e^{100}} != e^{-101} != 0
6.67 \times 10^{-11} == 6.67e-11 == 0.0000000000667 == 66.7\times 10^{-12} != 6.68\times 10^{-11}
6.67 \times 10^{-11} != 0 != 0.0 != 1\times 10^{-11}
1.6e-19 == 1.6\times 10^{-19} != 0 != 0.0 != 9e-17 != 1.7\times 10^{-19}
0.0000001 == 10^{-7} == 1\times 10^{-7} != 0.0000002
x=\frac{1}{2^{99}} != x=\frac{1}{2^{98}}
[0,\frac{1}{2^{99}}] != [0,\frac{1}{2^{98}}]
2^{-1000}i != 2^{-1001}i
y=2^{-99}x != y=2^{-98}x
\ln 1=0 != 0=0 != N=n
\ln e=1 != 1=1 != 0=0
\ln (1)=0 == \ln(1)=0
10^{0}=1 == 1=10^0 != 1=1
\log _{b} 1=0 != 0=0 != N=n
\frac{2}{4}=\frac{1}{2} != \frac12=\frac12 != 0=0
x^2+1=0, y=2 != N=n, y=2 != x^2+3=0, y=2
x^2+1=0 \text{ and } y=2 != N=n
f^{-1}(x)=x-1 == f^{-1}(x)=-1+x != N=n != 0=0
\frac{x}{y}=\frac{y}{x} != N=n
(x-1)^{2}+(y-2)^{2}=-4 == (y-2)^2+(x-1)^2=-4 != 0=0 != N=n != 0=1
e^{2x}=-1 != e^{x}=-5 != N=n
\frac{1}{x}=0 != \frac{2}{x-1}=0 != N=n
5^3=125 == 125=5^3 != 125=125 != N=n
4^{-\frac{1}{2}}=\frac{1}{2} != \frac{1}{2}=\frac{1}{2} != 0=0
x^2+y^2-4x+6y+13=0 == (x-2)^2+(y+3)^2=0 != N=n
# numbers side by side
\frac{71}{6} == 11 5/6 == 11\frac{5}{6} == 11 \frac{5}{6} == 11\ 5/6 == 11\,\frac{5}{6} == 11~5/6
\frac{71}{6} != 11 6/5
22\frac{1}{2} == 22 1/2 == 22.5 == \frac{45}{2} == 22\tfrac12 != 11.5 != 11 != 23
\frac{8}{3} == 2 2/3 == 2\frac23 != 11 5/6 != 2 3/2
22 1/2 == 22.5 == 45/2 == 22\frac12 == 22 1/2 \text{ feet} != 11.5
-\frac{7}{3} == -2\frac{1}{3} == -2 1/3 != -1 != -\frac{5}{3}
-2 1/3 == -\frac{7}{3} != -1
5-2\frac{1}{3} == \frac{8}{3}
2\frac{1}{2}x == \frac{5}{2}x == 2.5x != x
\frac{3\pi}{2} == 1\frac{1}{2}\pi == 1 1/2 \pi
3 1/4 == 13/4 == 3.25 == 3 \frac{1}{4} \text{ cups}
6 == 2(3) == (2)(3) == 2 \cdot 3 == 3\left(2\right) != 2 3
5 != 2 3 != 2(3) != (2)(3)
\frac{5}{2} != 2(1/2)
1 == 2(1/2) == 2\left(\frac{1}{2}\right)
\frac{10}{3} == 2\frac{5}{3} != \frac{11}{3}
10 == 2\cdot 5 == 2(5)
20 == 2\binom{5}{2} != 12
2,3 == 2, 3 == 3,2
(x+1)(x+2) == x^2+3x+2 == (x+2)(x+1) == \left(x+1\right)\left(x+2\right)
3(x+2) == 3x+6
2\left(x+1\right)\left(x-1\right) == 2x^2-2
2^3(4) == 32
x(x+1) == x^2+x
1 3/4 \text{ hours} == \frac{7}{4} == 1.75
$2 \frac{3}{4}$ == 11/4 == 2.75
1 1/2, 2 1/2 == 1.5, 2.5 == \frac32,\frac52
x = 4\frac{1}{2} == 4.5 == x=9/2
# powers of ten
4e33 == 4\times 10^{33} == 4 \cdot 10^{33} == 4*10^{33} == 4 x 10^33 == 4E33 == 4e+33 == 4.0e33
4e33 != 4\times 10^{34} != 4\times 10^{32} != 132e
2.75e11 == 2.75 \times 10^{11} == 275000000000 == 27.5\times 10^{10}
2.75e11 == 2.75\times 10^{11} \mathrm{~cm} != 2.75\times 10^{12} != 2.76\times 10^{11}
3.3e12 == 3.3 \times 10^{12} \mathrm{~cm} == 3.3\times10^{12}\text{ cm}
3.3e12 == 3.3\times 10^{12}\ \text{cm} == 3.3 \times 10^{12}\,\mathrm{cm}
1.1e23 == 1.1\times 10^{23} == 110000000000000000000000
5e-3 == 0.005 == 5\times 10^{-3} == 5e-3
2e-1 == 2e-1 == -1+2e
1e-10 == 10^{-10} == 1\times10^{-10} != 10^{-11} != 0
-1.5e-3 == -0.0015 == -1.5 \times 10^{-3}
3e8 == 3\times 10^8 == 300000000 == 3 \times 10^{8} \mathrm{~m/s}
3e8 == 3\times 10^{8} \mathrm{~m} / \mathrm{s}
6.626e-34 == 6.626\times 10^{-34} != 6.6\times 10^{-34} != 0
1e6 == 10^6 == 1000000 == 1{,}000{,}000
4.5e33 == 4.5\times 10^{33} == 45\times 10^{32}
8.9e11 == 8.9\times10^{11} != 8.8\times 10^{11}
(1e3, 2e3) == (1000,2000)
# letters in other type
1 - \frac{1}{\mathrm{e}} == 1 - \frac{1}{e} == \frac{\mathrm{e}-1}{\mathrm{e}} == \frac{e-1}{e}
1 - \frac{1}{\mathrm{e}} == 1-e^{-1} == 1-\mathrm{e}^{-1}
$1-5\mathrm{i}$ == 1-5i == 1-5\text{i} == -5i+1 == 1-5\mathrm{i} != -4 != 1+5i != 1
2\mathrm{e}^{3} == 2e^3 != 2
3+4\mathrm{i} == 3+4i == 4i+3 != 3+4 != 7 != 3
\mathrm{e}^{\mathrm{i}\pi/4} == e^{i\pi/4}
2\mathbf{i}+3\mathbf{j} == 3\mathbf{j}+2\mathbf{i} == 2i+3j != 2\mathbf{i}+3 != 2i+3\mathbf{k} != 2
\mathbf{i}-2\mathbf{j}+\mathbf{k} == \mathbf{k}+\mathbf{i}-2\mathbf{j} != \mathbf{i}-2\mathbf{j}
2\mathrm{n}+1 == 2n+1
5 \mathrm{~m} == 5 == 5\text{ m} == 5\mathrm{m}
5\mathrm{~kg} == 5
\sqrt{3}-\mathrm{i} == \sqrt3-i
\frac{1+\mathrm{i}}{2} == \frac{1}{2}+\frac{i}{2} == \frac{1+i}{2}
\mathrm{A} == A == \text{A} != B
\mathrm{i} == i != 1
\operatorname{e}^{2} == e^2
\frac{ a }{ b } == \frac{a}{b}
2\mathrm{e} == 2e != 2
\ln 2+\mathrm{e} == e+\ln 2 != \ln 2
-\mathrm{i} == -i
# roots
\sqrt{1/n} == \frac{1}{\sqrt{n}} == n^{-1/2} == \frac{\sqrt{n}}{n} != \sqrt{n} != \frac{1}{n}
\frac{1}{\sqrt{n}} == \sqrt{1/n} == \sqrt{\frac{1}{n}}
4\sqrt{2} == 4\sqrt(2) == 4\sqrt{(2)} == 4sqrt(2) == \sqrt(32) == \sqrt{32}
\sqrt{\frac{a}{b}} == \frac{\sqrt{a}}{\sqrt{b}}
\frac{\sqrt{a}}{\sqrt{b}} == \sqrt{\frac{a}{b}} != \sqrt{\frac{b}{a}}
\sqrt{x}\sqrt{y} == \sqrt{xy}
|x| == \sqrt{x^2} != x != -x
x != \sqrt{x^2} != |x|
\sqrt{x^2} != x != 0.7\sqrt{x^2} != \sqrt{x^2}+10^{-40}
\frac{\sqrt(3)}{2} == \frac{\sqrt{3}}{2}
\sqrt((1+2)^2) == 3
\sqrt{x+1} == \sqrt(x+1) == (x+1)^{1/2} != \sqrt{x}+1
\sqrt{\frac{k}{m}} == \frac{\sqrt{k}}{\sqrt{m}} == \sqrt{k/m}
\sqrt{4-x^2} == \sqrt{(2-x)(2+x)} == \sqrt{2-x}\sqrt{2+x} != 2-x
\frac{1}{\sqrt{1-v^2/c^2}} != \frac{1}{\sqrt{1-v^2}}
2\sqrt{x} == \sqrt{4x} != \sqrt{2x}
x\sqrt{x} == x^{3/2} == \sqrt{x^3}
\sqrt{x+1+2\sqrt{x}} == \sqrt{x}+1 != \sqrt{x}+1+10^{-40}
\sqrt{x+i} != \sqrt{x-i}
# or
$x \le -2$ or $x \ge 3$ == (-\infty,-2]\cup[3,\infty) == x\ge 3 or x\le -2
$x \le -2$ or $x \ge 3$ == x \le -2 \text{ or } x \ge 3 == x \leq -2, x \geq 3
$x \le -2$ or $x \ge 3$ != (-\infty,-2)\cup(3,\infty) != [-2,3] != x\ge 3 != x\le -2
(-\infty,-2]\cup[3,\infty) == $x \le -2$ or $x \ge 3$ == x \le -2 \text{ or } x \ge 3
(-\infty,-2]\cup[3,\infty) == x\ge 3 \lor x\le -2
x<1 \text{ or } x>2 == (-\infty,1)\cup(2,\infty) == x>2 \text{ or } x<1
x<1 \text{ or } x>2 == (2,\infty)\cup(-\infty,1) != (1,2) != (-\infty,1]\cup[2,\infty)
W(x)=1orW(x)=-1 == W(x)=1, W(x)=-1 == W(x)=-1 or W(x)=1 != W(x)=1 != W(x)=-1
x=2orx=-3 == x=2, x=-3 == 2,-3 == x=2 \text{ or } x=-3 != 2 != x=2
1<x<2 \text{ or } x>5 == (1,2)\cup(5,\infty)
2or3 == 2,3 == 3 or 2
x=1 \text{ or } x=2 == \{1,2\} == 1,2 != 1
x<-1 \text{ or } x>1 == |x|>1 == (-\infty,-1)\cup(1,\infty)
# words and choices
4 == four == \text{four} == Four != five != fourteen
\text{seven} == 7 == seven != 8
E == E: A polygenic risk score == (E) A polygenic risk score == \text{E: A polygenic risk score}
E == \textbf{(E)}\ 12 == E. something == E) 5 != D: x != A) E) != (E)(A)
D == (D) == D. == \textbf{(D) } 12 == \text{(D)}\ 5 != E: A polygenic risk score != (A), (D)
D != A or D != D) or E) != A) D != D: or A
"""
# What answers and golds look like beside LaTeX as papers print it. A heading names the kind
KINDS = r"""
# unit-letter
3+2m != 5 == 2m+3
5-5c != 0
$-9.8 t$ != -9.8 == -9.8t
3ab != 3 == 3ba
2h != 2
4+3g != 7
7l != 7
6o != 6
x+2s != x+2
2^{m} != 2
5cm != 5
2ft != 2
4hs != 4
4st != 4
\frac{1}{2}gt != \frac{1}{2}
\frac{1}{2}gt^2 == \frac{gt^2}{2}
\frac{3}{4}d != 3/4 == 0.75d
(a+b)c != a+b == ac+bc
\sqrt{2} s != \sqrt{2}
2bc != 2
2\pi h != 2\pi
a+b+c != a+b
12 == 12 cm == 12cm == 12 m
12 \text{ cm} == 12
12 cm == 12
5\mathrm{~cm} == 5
30 \text{ mph} == 30
30 mph == 30
5 feet == 5
8 hours == 8
5 == 5 square units == 5 \text{ square units} == 5\text{ cm}^2
5\text{ cm}, 7\text{ cm} == 5,7 != 5 != 7
9.8 \text{ m/s}^2 == 9.8
3\times 10^{8} \mathrm{~m} / \mathrm{s} == 3e8
3\times 10^{8} == 3\times 10^{8} \mathrm{~m} / \mathrm{s}
3 apples == 3
180-4x != 180
4n != 4
4+5c != 9
2-3d != -1
6-h != 6-1
2xt != 2x
v+at != v+a
x+2ab != x+2
8cm != 8
-16t^2+64t != -16t^2+64
2l+2w == 2w+2l
20+0.1m == 0.1m+20 != 20.1
20 + 0.1 m != 20.1
\frac{a}{b} c != \frac{a}{b}
\frac{1}{2} m != \frac{1}{2}
m != 1
2^m != 2
x^{2} s != x^2
3 \sqrt{5} g != 3\sqrt5
16 \mathrm{~s} == 16
16 == 16 s != 16s != 16x != 16 \cdot x
7 == 7 \text{ units} == 7 units
\$7 == 7 dollars
24\pi == 24\pi \text{ cm}^3 == 24\pi cm^3
10\% == 10 percent
75\% == 75 \text{ percent}
45 == 45 km/h
45 \text{ km/h} == 45
2\text{ hours } 30\text{ minutes} != 2
# plain
\frac{\pi}{4} == pi/4 != pi/3
2\pi r == 2*pi*r
\ln x == ln(x)
7*sin(pi*x/5)+1 == 7\sin\left(\frac{\pi x}{5}\right)+1
\frac{x}{2} == x/2
2*sqrt(2)/3 == \frac{2\sqrt{2}}{3}
\cos x == cos(x) == cosx
\tan^2 x == tan^2(x) == tan(x)**2
e^{-x^2/2} == exp(-x^2/2) == e^(-x^2/2)
e^{2x} == e^(2*x)
\log_2 5 == log_2(5) == log2(5)
\arctan 2 == arctan(2) == atan(2)
\arcsin\frac13 == asin(1/3)
|x| == abs(x)
x^2+1 == x**2+1
(x+1)^2 == (x+1)**2
x^{-1} == x^-1
\frac{1}{x} == x^(-1)
2^{10} == 2**10
\frac{n(n+1)}{2} == n*(n+1)/2
\sqrt{x} == sqrt(x)
\sqrt{x^2+1} == sqrt(x^2+1)
\sqrt[3]{2} == 2^(1/3)
\theta == theta
2\alpha+\beta == 2alpha+beta
x \le 5 == x <= 5
x \ge 5 == x >= 5
(-\infty,2] == (-infinity, 2] == (-inf, 2] == (-oo, 2]
(-\infty,2]\cup[3,\infty) == (-infinity,2] U [3,infinity)
1\pm\sqrt{2} == 1+-sqrt(2) == 1 +/- sqrt(2)
\frac{1}{2}\ln 3 == ln(3)/2
\sin 2x == sin2x == sin(2x)
\pi != p*i == pi
2\pi == 2pi
\pi r^2 == pi*r^2 == pi r^2
i != pi
e^{x}\cos x == e^x cos(x) == exp(x)*cos(x)
\frac{3\pi}{4} == 3pi/4 == (3*pi)/4 != 3*pi/5
\sqrt{\pi} == sqrt(pi)
\frac{\sqrt{3}}{2} == sqrt(3)/2
\frac{\ln 2}{\ln 3} == ln(2)/ln(3) != ln(3)/ln(2)
\ln(x+1) == ln(x+1) != ln(x)+1
\log x == log(x)
-\cos(2x)+C == -cos(2x)+C
\frac{1}{3}x^3+C == x^3/3+C
\frac{1}{1+e^{-x}} == 1/(1+e^(-x)) == 1/(1+exp(-x))
\arctan x == arctan(x)
\tan^{-1} x == \arctan x
\sin^{-1}\frac12 == \frac{\pi}{6}
\sinh x == sinh(x)
(\frac{\pi}{2},\pi) == (pi/2, pi)
\{-\sqrt{2},\sqrt{2}\} == {-sqrt(2), sqrt(2)}
\frac{1}{\sqrt{2\pi}}e^{-x^2/2} == (1/sqrt(2*pi))*exp(-x^2/2)
2\cos\theta == 2*cos(theta)
3e^{2t} == 3*e^(2*t) == 3e^(2t)
\gamma == gamma
x^2y == x**2*y
x_1+x_2 != x1+x2
a^{n+1} == a^(n+1) != a^n+1
\frac{x+1}{x-1} == (x+1)/(x-1)
\frac{x+1}{2x} == (x+1)/(2x)
\log_{10} 5 == log10(5)
# comma
0.5 == 0{,}5
12{,}5 == 12.5 != 125
1{,}234 == 1234 != 1.234
3{,}14 == 3.14 != 314
1{,}000{,}000 == 1000000
1{,}000{,}5 != 10005
0{,}125 == \frac18
12{,}345 == 12345
2{,}50 == 2.5
x=0{,}25 == 0.25
(0{,}5; 1{,}5) == (0.5, 1.5)
3{,}5 != 3,5
1{,}5 == \frac32
-2{,}75 == -2.75
12{,}50 == 12.5
10{,}000{,}000 == 10^7
2{,}345{,}678 == 2345678
3{,}75\% == 3.75\%
0{,}5x+1 == 0.5x+1
100{,}5 != 1005
1.5 == 1{,}5 != 15
12{,}345.67 == 12345.67
1,234 != 1.234
# unicode
[2,\infty) == [2,∞)
x^2+1 == x²+1
90 == 90°
(1,2) == （1，2）
2\pi == 2π
x \le 5 == x ≤ 5
\sqrt{17} == √17 == √{17} != √1
\sqrt{x+1} == √(x+1)
3\sqrt{2} == 3√2
\frac{\sqrt{3}}{2} == √3/2
7 != √17
\sqrt[3]{5} == ∛5
\frac{1}{2} == ½
2\frac{1}{2} == 2½
x^{10} == x¹⁰
x^{-1} == x⁻¹
a_1+a_2 == a₁+a₂
2\times 10^{5} == 2×10⁵
2\times 10^{-5} == 2 × 10⁻⁵
-3 == −3 == –3
\frac{6}{2} == 6÷2
x\ne 2 == x ≠ 2
\pm 2 == ±2
\emptyset == ∅
\mathbb{R} == ℝ
(1,2)\cup(3,4) == (1,2)∪(3,4)
\theta == θ
x\in(0,1) == x∈(0,1)
\{1,2\} == ｛1，2｝
x=1, y=2 == x＝1，y＝2
50\% == 50％
(-∞,3) == (-\infty,3)
x≥2 == x\ge 2
3√5 == 3\sqrt{5}
√2+√3 == \sqrt2+\sqrt3
\frac{-1+\sqrt{5}}{2} == (−1+√5)/2 != (−1−√5)/2
\frac{3}{4} == ¾
x^3-2x == x³−2x != x²−2x
120^\circ == 120º
\angle ABC = 60^\circ == 60°
2\sqrt[3]{4} == 2∛4
\frac{\pi^2}{6} == π²/6
\alpha+\beta == α+β
\{1,2,3\} == {1，2，3}
[0,1) == ［0，1）
(3,4) == （3，4）
12 == １２
x∈ℝ == x\in\mathbb{R}
A∪B == A\cup B
10^{-3} == 10⁻³
5\cdot 10^{4} == 5·10⁴
\frac{1}{3} == ⅓
x\to 0 == x→0
# degrees
\sin 30 != \sin 30^\circ
\frac{\sqrt{3}}{2} == \cos 30^\circ
54^\circ == 54
\frac12 == \sin 30^\circ == \sin 30° == \sin(30^\circ) == \sin(30^{\circ}) != \sin 30
1 == \tan 45^{\circ}
\sin 30^\circ == \frac12 != \sin 30
2\sin 40^\circ == 2\cos 50^\circ != 2\sin 40
60^\circ == \frac{\pi}{3}
\frac{\pi}{3} == 60^\circ != 60
60 != \frac{\pi}{3}
30^\circ != 60^\circ
30^\circ 15' == 30.25^\circ != 30^\circ 20'
25^\circ C == 25
25^\circ\text{C} == 25^{\circ}\mathrm{C}
90^\circ == 90 degrees == 90\text{ degrees}
\frac{180}{7}^\circ == \frac{180}{7}
\frac{180}{7} == \left(\frac{180}{7}\right)^\circ
\sin\frac{180}{7}^\circ == \sin\frac{\pi}{7}
x^\circ == x
\tan x^\circ != \tan x
\angle A=30^\circ == 30^\circ
\cos 60^\circ == 0.5
\tan 60 != \tan 60^\circ
\sqrt{3} == \tan 60^\circ == \tan(60°) == tan(60°) != \tan 60
\frac{1}{2} == \sin\left(30^{\circ}\right)
\frac{1}{4} == \sin 30^\circ \cos 60^\circ == \sin 30^\circ\cdot\cos 60^\circ
\frac{\sqrt2}{2} == \sin 45 \text{ degrees}
\cos 20^\circ == \sin 70^\circ != \cos 20
10\sin 35^\circ == 10\sin 35^{\circ} != 10\sin 35
\frac{1}{\sin 10^\circ} == \csc 10^\circ
\frac{5}{\sin 40^\circ} != 7.7786
36^\circ, 72^\circ == 36, 72 == 72^\circ, 36^\circ
15^\circ == 15
15 == 15^\circ
100^\circ != 10^\circ
2\pi == 360^\circ != 180^\circ
37^\circ C == 37^\circ != 38^\circ C
# closed-form
1 == \log_2 3 \cdot \log_3 2 != \log_2 3 \cdot \log_3 4 == \sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}
1 != 1+10^{-400} == \sin^2 20^\circ+\cos^2 20^\circ == \sin^2 1 + \cos^2 1 == e^{i\pi}+2
1 != 0.9999999
-\frac{1}{2} == \cos\frac{2\pi}{7}+\cos\frac{4\pi}{7}+\cos\frac{6\pi}{7}
2 == \log_2 3 \cdot \log_3 4 == \log_3 9 == \sqrt[3]{7+5\sqrt{2}}+\sqrt[3]{7-5\sqrt{2}}
2 != \sqrt{2+\sqrt{2+\sqrt{2}}}
\frac{1}{8} == \cos 20^\circ\cos 40^\circ\cos 80^\circ
\frac{1}{8} == \cos\frac{\pi}{9}\cos\frac{2\pi}{9}\cos\frac{4\pi}{9}
2-\sqrt{3} == \tan 15^\circ
4 == \sqrt{6+4\sqrt{2}}+\sqrt{6-4\sqrt{2}}
\frac{\sqrt5-1}{4} == \sin 18^\circ != \sin 19^\circ
3 == 2^{\log_2 3} == \log_2 3\cdot\log_3 4\cdot\log_4 8
\frac{\pi}{4} == \arctan\frac12+\arctan\frac13 != \arctan\frac12+\arctan\frac14
7 == 2\log_2 8 + 1
\frac{\pi}{6} == \arcsin\frac12
\log_2 6 == 1+\log_2 3 != \log_2 3
\frac{1}{2} == \cos\frac{\pi}{5}-\cos\frac{2\pi}{5}
\frac{3}{2} == \sin^4\frac{\pi}{8}+\sin^4\frac{3\pi}{8}+\sin^4\frac{5\pi}{8}+\sin^4\frac{7\pi}{8}
\sqrt{7} == \tan\frac{\pi}{7}\tan\frac{2\pi}{7}\tan\frac{3\pi}{7}
\sqrt{6} != \tan\frac{\pi}{7}\tan\frac{2\pi}{7}\tan\frac{3\pi}{7}
\frac{\pi^2}{6} == \sum_{n=1}^{\infty}\frac{1}{n^2} != \sum_{n=1}^{100}\frac{1}{n^2}
e == \sum_{n=0}^{\infty}\frac{1}{n!}
5 == |3+4i|
\pi != \frac{355}{113}
# choice
I == \text{I} == (I) == \textbf{(I)} == I. != H != \text{J} != 1 == (I) 42 == I: the last one
I != A: the first one == i != (H), (I)
H != I == \text{H}
C == \textbf{(C)}
E == \mathrm{E}
D == d
J == \text{J} == (J)
A == \boxed{A}
B == (b) == \mathbf{B}
G == \text{G.}
F == \text{(F)} != \text{False}
T != \text{True}
# truth
True == true == TRUE == \text{true} != False
\text{True} == true
False == false
Yes == \textbf{Yes} != No == yes.
no == No
\text{even} != neve
\text{false} == False
\text{False} == FALSE
YES == yes
\text{No} == no
No != Yes
true != ture
\text{true} != 1
\text{Even} == even
\text{neither} == Neither != \text{both}
\text{Monday} == monday
# notation
12 == 12^{\text{th}} == 12th == 12^{th} != 12^{t} != 12^{13}
3 == 3^{\text{rd}}
21 == 21st
12^{\text{th}} == 12 != 13^{\text{th}}
p=5,q=2 \text{ and } p=7,q=2 == p=5,q=2;p=7,q=2 == p=7,q=2;p=5,q=2 != p=5,q=2 != p=5,q=7;p=2,q=2
(5,2), (7,2) == (5,2) \text{ and } (7,2)
\prod_{k=1}^{n} k == n! != (n+1)!
n! == \prod_{k=1}^{n} k != (n-1)!
\frac{n(n+1)}{2} == \sum_{k=1}^{n} k
\sum_{k=1}^{n} k == \frac{n(n+1)}{2} != \frac{n(n-1)}{2}
1 \pm \sqrt{19} == 1+\sqrt{19}, 1-\sqrt{19}
2 \lor 3 == 2,3 != 2
x=2 \lor x=3 == 2,3
x=1 \vee x=-1 == x=\pm 1
2 ∨ 3 == 3,2
2,3 == 2; 3
\binom{n}{k} == {n \choose k}
\frac{1}{2} == {1 \over 2} == \frac12. != 0.5x
]2,3[ == (2,3)
x>1 \text{ and } x<3 == (1,3)
\tan x == \operatorname{tg} x
\lg 2 == \log_{10} 2
x<3 == x &lt; 3
-1 == \text{-1}
5^{\text{th}} == 5
5 == 5\text{th} != -5
2 == 2^{\text{nd}} == 2nd
101 == 101^{\text{st}}
x=1,y=2 \text{ or } x=3,y=4 == x=1,y=2; x=3,y=4 == (1,2),(3,4) != (1,2),(4,3) != x=1,y=4; x=3,y=2
(1,2);(3,4) == (1,2),(3,4)
2n! == 2\prod_{k=1}^{n} k
x=2 \text{ or } x=3 == x=2 \lor x=3
x>3 \lor x<1 == (-\infty,1)\cup(3,\infty) != x<1 \text{ and } x>3
x<1 \text{ or } x>3 != x<1 \text{ and } x>3
1<x \land x<3 == (1,3)
1<x \text{ and } x<3 == 1<x<3
x=1 \text{ and } x=2 == 1,2
1 \text{ and } 2 == 1 ∧ 2
np.float64(0.5) == 0.5 != 0.6
np.int64(7) == 7
(2,3) == ]2,3[
x<2 != x>2
1 != 1\text{ or }2 == 3+-2
50 == 50^{\circ}\mathrm{F}
abc != 6
2x == 2 x
6! == 720
m/s != m
\frac{m}{s} == m/s
10 \text{ m/s} == 10 m/s == 10
A != A \text{ and } B
9.8 \text{ m/s}^2 == 9.8 m/s^2
# mixed
\sin 30 != 30
\frac{a}{b} == a/b
2^{\frac{1}{3}} == \sqrt[3]{2}
f(x)=2x != f(x)=2x+1
(−1,2) == (-1,2)
x \in [1,2] == 1≤x≤2 != 1≤x<2
10:30 == 10:30 \text{ a.m.}
5 != five apples
2 == 2.0 \times 10^0
4 == \sqrt{16} != ±4
-1 == i²
1000 == 1 000
\frac{1}{2},\frac{1}{3} == ½, ⅓
x>0, y>0 == x＞0，y＞0
a != \alpha
\alpha != a
3\frac{1}{2} == 3½ != 3·½
2^{10} == 2¹⁰ != 210
x_1 == x₁
x_{12} == x₁₂
16\pi == 16π cm² == 16π \text{ cm}^2
12 == 12 cm²
\{(1,2),(3,4)\} == (1,2),(3,4)
(2,-1,3) == x=2,y=-1,z=3
x+y=3 == y = 3 - x
\frac{d}{2} != \frac{1}{2}
a^2+b^2+c^2 != a^2+b^2
mc^2 != m == E=mc^2
vt != v
2.5 \times 10^{3} m != 2500
5 km == 5
0.8 g != 0.8
0.8 \, \text{g} == 0.8
0.8 \, \mathrm{g} == 0.8 g
\frac{2}{3} h != \frac23
120 \text{ s} == 120 s
40 \, \Omega != 40
y = 3x + b == y=3x+b
y=mx+b != y=mx
k(k+1)s != k(k+1)
\sqrt{gh} != \sqrt{g} == sqrt(g*h)
\cot x == cot(x)
\frac{\ln x}{x} == ln(x)/x == lnx/x
xe^x == x*exp(x) == x*e**x
\sin^2\theta == sin(theta)^2
\sqrt{2}/2 == sqrt(2)/2
-\infty == -infinity
(0,\pi) == (0, pi) != (0, 3.14)
2k\pi == 2*k*pi
\frac{5\pi}{6} == 150° == 5*pi/6
\log_3 7 == log_3(7) == log(7)/log(3) == \ln 7/\ln 3
e^{-1} == 1/e == exp(-1)
n^2+n == n**2 + n
30\% == 30 pct
II == \text{II} != I
\text{I and II} == I and II != I and III
\text{(B)} == (B) x=2
(B) == B != C
\textbf{(D)}\ 12 == D != C
C. 12 == C != B
2{,}5\text{ kg} == 2.5
\text{Infinitely many} == infinitely many
T == \text{T}
\text{undefined} == undefined
n\cdot n! == n*n!
n! == \Gamma(n+1)
\frac{(2n)!}{2^n n!} == \prod_{k=1}^{n}(2k-1)
A:B != A != B
(A)(B) != A
12 \text{ m} != 12x
"""


def table(text):
    """The rows of AGREEMENT -> [(gold, answer, whether it is right), ...]"""
    pairs = []
    for line in text.strip().splitlines():
        if not line.startswith("# "):
            gold, *rest = (" " + line).replace(" == ", "\0=").replace(" != ", "\0!").split("\0")
            pairs += [(gold.strip(), word[1:], word[0] == "=") for word in rest]
    return pairs


PAIRS = table(AGREEMENT + KINDS)

# Where math-verify's verdict is not a mathematician's, as docs/problems.md lists them: (gold,
# answer, the mathematician's)
LIMITS = {
    "Decimals are compared to six places, below 0.001 to six digits": [
        (r"\frac{1}{3}", "0.333333", False), (r"\pi", "3.1415926535", False)],
    "Units, percent signs and bases are dropped, not compared or converted; a colon divides": [
        (r"5\text{ cm}", r"5\text{ m}", False), (r"5\text{ cm}", r"50\text{ mm}", True),
        ("9", r"9\%", False),
        ("101_2", "101_3", False), ("3:4:5", "3:5:4", False), ("3:30", "7:70", False)],
    "Ordered and unordered are told apart only where both are ordered": [
        ("(1,2)", r"\{1,2\}", False), ("(1,2,3)", r"\{1,2,3\}", False)],
    "Inequalities are compared as they stand": [
        ("1<x<2", "2>x>1", True), ("2x>4", "x>2", True)],
    "Letters are compared without their case, and primes are dropped": [
        ("N^2", "n^2", False), ("E", "e", False), ("f'(x)=2x", "f(x)=2x", False)],
}

CFG = dict(verify_s=20.0, verify_bytes=1024)


def check_math(pairs, cfg):
    """sandbox.check of [(gold, what the model wrote), ...]."""
    return sandbox.check("math", [(dict(answer=gold), text) for gold, text in pairs], cfg)


def box(answer):
    return rf"So the answer is $\boxed{{{answer}}}$."


def processes():
    """{pid: (parent, session, state)} of this machine."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
            state, parent, _, session = fields[:4]
        except OSError:
            continue
        found[int(name)] = int(parent), int(session), state
    return found


def children(pid):
    return [child for child, (parent, _, state) in processes().items() if parent == pid
            and state != "Z"]


def cpu(pid):
    """CPU seconds of a process and of all its children, the dead ones too."""
    ticks = 0
    for one in [pid, *children(pid)]:
        fields = open(f"/proc/{one}/stat").read().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(pid, field):
    """Bytes of a field of /proc/PID/status; 0 if the process is gone."""
    try:
        return 1024 * int(next(line.split()[1]
                               for line in open(f"/proc/{pid}/status") if line.startswith(field)))
    except (OSError, StopIteration):
        return 0


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, inspect.getsource(condition)
        time.sleep(0.02)


def close(pool):
    pool.threads.shutdown(cancel_futures=True)
    while not pool.free.empty():
        pool.end(pool.free.get())


@pytest.fixture(scope="module")
def kept():
    pool = sandbox.Pool("math", 1)
    yield pool
    close(pool)


@pytest.fixture
def one(kept, monkeypatch):
    """A Pool of one process that tests share, in the place of sandbox.pool."""
    monkeypatch.setattr(sandbox, "pool", lambda kind: kept)
    return kept


@pytest.fixture
def make_pool(monkeypatch):
    """make_pool(workers): a warm Pool in the place of sandbox.pool."""
    pools = []

    def make(workers):
        pool = sandbox.Pool("math", workers)
        pools.append(pool)
        monkeypatch.setattr(sandbox, "pool", lambda kind: pool)
        warm = check_math([(str(i), box(i)) for i in range(20 * workers)], CFG)
        assert set(warm) == {1}
        return pool
    yield make
    for pool in pools:
        close(pool)


def servers(pool):
    """The processes of an idle pool."""
    all_of_them = [pool.free.get(timeout=20) for _ in range(pool.threads._max_workers)]
    for process in all_of_them:
        pool.free.put(process)
    return all_of_them


# -------------------------------------------------------------------------------------------------
# Agreement

def test_known_verdicts(one):
    """Each verdict as written down, each gold right against itself; none of these honest answers
    makes the library raise."""
    assert len(PAIRS) >= 700 and len(set(PAIRS)) == len(PAIRS)
    pairs = list(dict.fromkeys(PAIRS + [(gold, gold, True) for gold, *_ in PAIRS]))
    verdicts = check_math([(gold, box(answer)) for gold, answer, _ in pairs], CFG)
    assert not [(*pair, verdict) for pair, verdict in zip(pairs, verdicts)
                if verdict != pair[2]]


def test_pairs_of_ones_own_are_told_in_words(one):
    """As docs/problems.md asks it, with the flat dict."""
    pairs = [(r"\frac{1}{2}", box("0.5")), ("1", box("2")), ("1", "no box"), ("1", box("1" * 2000)),
             ("1", box("10^{10^{10}}"))]
    said = verifier.check_math(pairs, dict(config.config, verify_s=2.0))
    assert said[:4] == ["right", "wrong", "wrong", "error"] and said[4] != "right"


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_are_the_librarys(kind, one):
    """What we get wrong, math-verify as its users call it gets wrong in the same way."""
    from math_verify import parse, verify
    for gold, answer, true in LIMITS[kind]:
        assert verify(parse(f"${gold}$"), parse(f"${answer}$")) is not true
        assert check_math([(gold, box(answer))], CFG) == [not true]


def test_at_most_five_limits():
    assert len(LIMITS) <= 5
    assert not {(g, a) for g, a, _ in PAIRS} & {(g, a) for limit in LIMITS.values()
                                                for g, a, _ in limit}


@pytest.mark.parametrize("gold, answer", [("5", "2+3=5"), ("7", "10-3=7"),
                                          (r"\frac{1}{2}", r"1-\frac{1}{2}=\frac{1}{2}")])
def test_gold_comes_first(gold, answer, one):
    """The last number of an equation is an answer; as a gold answer an equation asks for an
    equation."""
    verdicts = check_math([(gold, box(answer)), (answer, box(gold))], CFG)
    assert verdicts == [1, 0]


def test_equal_pairs_are_graded_once(one, monkeypatch):
    pool, asked = one, []
    ask = pool.ask
    monkeypatch.setattr(pool, "ask", lambda *words: asked.append(words) or ask(*words))
    pairs = [("1", box("1")), ("1", box("2")), ("1", "so " + box("1")), ("2", box("2")),
             ("1", box("1")), ("1", box("2"))]
    assert check_math(pairs, CFG) == [1, 0, 1, 1, 1, 0]
    assert sorted(asked) == [("1", "1", 20.0), ("1", "2", 20.0), ("2", "2", 20.0)]


def test_workers_change_no_verdict(make_pool):
    """One process or three, in any order, twice: the same verdicts in the order of the input."""
    pairs = [(gold, box(answer)) for gold, answer, _ in PAIRS[::6]]
    true = [right for *_, right in PAIRS[::6]]
    for workers in 1, 3:
        make_pool(workers)
        assert check_math(pairs, CFG) == true
        assert check_math(pairs[::-1], CFG) == true[::-1]


# -------------------------------------------------------------------------------------------------
# What is graded: the last box after any thinking

@pytest.mark.parametrize("text, answer", [
    (r"\boxed{1} or \boxed{2}", "2"), (r"\boxed {3}", "3"), ("\\boxed\n{3}", "3"),
    (r"$\boxed{ x }$.", "x"),
    (r"\boxed{\boxed{4}}", "4"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\{1,2\}} }", r"\{1,2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."), (r"\boxed{a\\}", r"a\\"),
    (r"\boxed{\text{a}b} \text{c}", r"\text{a}b"),
    ("", ""), ("42", ""), (r"\boxed{}", ""), (r"\boxed{ }", ""), (r"\boxed 5", ""),
    (r"\fbox{5}", ""), (r"\boxed{5", ""),
    (r"\boxed{5} \boxed{6", ""), (r"\boxed{5\}", ""), (r"\boxed", ""), (r"\boxed{1}\boxed{}", ""),
    (r"<think>\boxed{1}</think>", ""), (r"<think>\boxed{1}</think> \boxed{2}", "2"),
    (r"\boxed{2} <think>\boxed{1}</think>", ""),
    (r"<think>\boxed{1}", ""), (r"\boxed{1}</think>\boxed{2}", "2"), (r"\boxed{1}</think>", ""),
    (r"<think></think>\boxed{2}<think>\boxed{1}", ""),
    (r"<think>a</think>\boxed{1}<think>b</think>\boxed{2}", "2"),
    (r"<think>a</think>\boxed{1}<think>b</think>no", "")])
def test_boxed(text, answer):
    assert math_answers.answer(text) == answer


def test_boxed_reads_so_many_bytes(one):
    """N bytes are read and not N + 1; characters of several bytes count as such; blanks around the
    answer do not count."""
    cfg = CFG | dict(verify_bytes=10)
    for answer, verdict in [("1" * 10, 1), ("1" * 11, ERROR),
                            ("é" * 5, 1), ("é" * 5 + "1", ERROR), ("é" * 6, ERROR),
                            ("∞" * 3, 1), ("∞" * 4, ERROR),
                            ("1" * 10 ** 6, ERROR), ("\U0001d7d9" * 3, ERROR)]:
        assert check_math([(answer, box(answer))], cfg) == [verdict], answer[:20]
    assert check_math([("1", r"\boxed{1" + " " * 30), ("1", r"\boxed{1")], cfg) == [ERROR, 0]


@pytest.mark.parametrize("piece", ["a", " ", "{", "}", "\\", r"\boxed", r"\boxed{", r"\boxed{}",
                                   r"\boxed   ", "<think>",
                                   "</think>", "\\{", "é"])
def test_boxed_is_linear(piece):
    """Twice the megabytes take about twice the time, whatever they are made of."""
    def best(text):
        times = []
        for _ in range(3):
            start = time.process_time()
            math_answers.answer(text, 65536)
            times.append(time.process_time() - start)
        return min(times)
    for text in (lambda n: piece * (n // len(piece)),
                 lambda n: r"\boxed{" + piece * (n // len(piece)),
                 lambda n: piece * (n // len(piece)) + r"\boxed{5}"):
        assert best(text(1_000_000)) < 4 * best(text(500_000)) + 0.02


def stub_tokenizer(texts, template=None):
    """A tokenizer whose token i is the text i."""
    return SimpleNamespace(chat_template=template,
                           batch_decode=lambda ids, skip_special_tokens: [texts[row[0]]
                                                                          for row in ids])


def test_grade_counts_what_went_wrong(one):
    """Rewards (P, n) in order; timeouts, errors and too long answers counted in rollouts, equal
    ones as often as they came."""
    import torch
    slow = box("9^{9^{9^{9^9}}}+x")
    texts = [box("5"), slow, box("1" * 2000), "5", box("5"), slow, r"<think>\boxed{5}",
             r"<think>5</think> \boxed{x=5}"]
    rollouts = dict(tokens=torch.arange(8)[:, None], length=torch.ones(8, dtype=torch.long))
    rewards, faults = verifier.grade([dict(answer="5"), dict(answer="5")], rollouts,
                                     stub_tokenizer(texts),
                                   dict(verifier="math", verify_s=1.0, verify_bytes=1024))
    assert rewards.tolist() == [[1, 0, 0, 0], [1, 0, 0, 1]] and rewards.dtype == torch.float32
    assert faults == dict(verifier_timeouts=2, verifier_errors=1)


def test_a_template_that_opens_the_thinking(prepare, one):
    """Where the chat template writes <think>, a response that never closes it has no answer."""
    import torch
    tokenizer = prepare.make_tokenizer()
    assert not verifier.opens_thinking(tokenizer)
    turns = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}"
    opened = {"A:": False, "A:<think>": True, "A:<think></think>": False, "A:</think><think>": True}
    for end, opens in opened.items():
        tokenizer.chat_template = turns + end + "{% endif %}"
        assert verifier.opens_thinking(tokenizer) == opens
    tokenizer.chat_template = (turns + "A:{% endif %}"
                               "{# <think> is what the model itself may write #}")
    assert not verifier.opens_thinking(tokenizer)
    tokenizer.chat_template = turns + "A:<think>{% endif %}"
    texts = [r"\boxed{5}", r"\boxed{4}</think>\boxed{5}", r"\boxed{5}</think>"]
    tokenizer.batch_decode = stub_tokenizer(texts).batch_decode
    rewards, _ = verifier.grade([dict(answer="5")], dict(tokens=torch.arange(3)[:, None],
                                                         length=torch.ones(3, dtype=torch.long)),
                              tokenizer, CFG | dict(verifier="math"))
    assert rewards.tolist() == [[0, 1, 0]]


# -------------------------------------------------------------------------------------------------
# A reward of one's own


def graded(monkeypatch, reward, texts, answers=("5", "6")):
    """What `grade` makes of texts under --verifier=mine with this function."""
    import torch
    monkeypatch.setitem(verifier.REWARDS, "mine", reward)
    problems = [dict(id=f"p{i}", prompt="?", answer=a) for i, a in enumerate(answers)]
    rollouts = dict(tokens=torch.arange(len(texts))[:, None],
                    length=torch.ones(len(texts), dtype=torch.long))
    return verifier.grade(problems, rollouts, stub_tokenizer(texts), CFG | dict(verifier="mine"))


def test_a_reward_for_a_format(monkeypatch):
    """A tenth for the format, the rest for the answer: nothing is floored; only 1 is solved."""
    def mine(problem, text, cfg):
        assert cfg["verify_bytes"] == 1024
        return 0.1 * ("#" in text) + 0.9 * verifier.exact(problem, text, cfg)
    rewards, faults = graded(monkeypatch, mine, ["#5", "#6", "5", "#5", "#6", "6"])
    assert rewards.flatten().tolist() == pytest.approx([1, 0.1, 0, 0.1, 1, 0])
    assert verifier.solved(rewards).tolist() == [[True, False, False], [False, True, False]]
    assert faults == dict(verifier_timeouts=0, verifier_errors=0)


def test_a_reward_may_ask_math_verify(monkeypatch, one):
    def mine(problem, text, cfg):
        return 0.5 * verifier.math_reward(problem, text, cfg)
    texts = [box("10/2"), box("6"), r"\boxed{5", box("6")]
    assert graded(monkeypatch, mine, texts)[0].tolist() == [[0.5, 0], [0, 0.5]]


@pytest.mark.parametrize("value", [-0.1, 1.1, 2, float("nan"), float("inf"), None, "1", [1]])
def test_a_reward_that_is_none(monkeypatch, value):
    """One line that names the verifier, the problem and the value."""
    def mine(problem, text, cfg):
        return value if problem["id"] == "p1" else True
    with pytest.raises(BadInput) as refused:
        graded(monkeypatch, mine, ["a", "b"])
    told = str(refused.value)
    assert told.startswith("--verifier=mine: gave problem p1 the reward ") and "\n" not in told
    assert repr(value) in told and "from 0 to 1" in told


def test_numbers_of_numpy_are_rewards(monkeypatch):
    import numpy as np
    rewards, _ = graded(monkeypatch, lambda *_: np.float32(0.25), ["a", "b"])
    assert rewards.tolist() == [[0.25], [0.25]]


@pytest.mark.parametrize("script", ["train_grpo", "evaluate", "sample"])
def test_an_unknown_verifier(script, tiny, monkeypatch, tmp_path):
    """Refused before a model is loaded, with those there are and the nearest; an added one is
    not."""
    import importlib
    monkeypatch.chdir(tmp_path)
    main, words = importlib.import_module(script).main, [*tiny.words, "--B_p=4", "--n=4", "--C=16"]
    monkeypatch.setattr("core.models.load_errors", None)
    with pytest.raises(BadInput,
                       match="--verifier=exactly: expected one of math, exact, .*is exact$"):
        main([*words, "--verifier=exactly"])
    assert not any(tmp_path.iterdir())
    config.choose("verifier", "math", verifier.REWARDS)
    monkeypatch.setitem(verifier.REWARDS, "exactly", verifier.exact)
    config.choose("verifier", "exactly", verifier.REWARDS)


# -------------------------------------------------------------------------------------------------
# Hostile answers. Each generator yields (kind, answer); RAW ones are the whole response, the others
# go into a box

def towers():
    for base, height in itertools.product(["9", "x", r"\pi", "0.1", "(-2)", r"\frac{1}{3}"],
                                          [3, 6, 40]):
        yield f"{base} to {height}", base + "^{" + "^{".join([base] * height) + "}" * height


def factorials():
    for n, marks in itertools.product(["9", "99999", "x"], [1, 3, 9, 300]):
        yield f"{n} {marks}!", n + "!" * marks if n != "9" or marks > 1 else "99999999!"
    for depth in 3, 9, 100:
        yield f"({depth})!", "(" * depth + "7" + ")!" * depth


def exponents():
    for k in 4, 7, 12, 300:
        yield f"huge {k}", f"7^{{{'9' * k}}}"
        yield f"negative {k}", f"7^{{-{'9' * k}}}"
        yield f"modulo {k}", rf"7^{{{'9' * k}}} \bmod 13"
        yield f"float {k}", f"1.000001^{{{'9' * k}}}"
        yield f"difference {k}", f"(x+1)^{{{'9' * k}}}-(1+x)^{{{'9' * k}}}"


def binomials():
    for k in 3, 6, 9, 40:
        yield f"binomial {k}", rf"\binom{{{'9' * k}}}{{{'4' * k}}}"
        yield f"symbolic {k}", rf"\binom{{n+{'9' * k}}}{{{'4' * k}}}"


def nesting():
    for (left, right), depth in itertools.product(
            [("{", "}"), ("(", ")"), ("[", "]"), (r"\left(", r"\right)"), (r"\{", r"\}"),
             ("|", "|"), (r"\sqrt{", "}"),
             (r"\frac{1}{", "}"),
             (r"\sin(", ")"), ("-", ""), (r"\text{", "}"), ("x_{", "}"), (r"\overline{", "}"),
             (r"\lfloor ", r"\rfloor "),
             ("(1,", ")")],
            [25, 3000]):
        yield f"{left} {depth}", left * depth + "1" + right * depth


def unbalanced():
    for i, piece in enumerate(["{", "}", "(", ")", "[", "]", r"\{", r"\}", r"\left(", r"\right)",
                               r"\begin{pmatrix}",
                               r"\end{pmatrix}", r"\frac{", r"\sqrt[", "|", "$", r"\[", "{}}{",
                               r"\left.", "&", r"\\", "^", "_"]):
        yield f"one {piece}", "12" + piece
        yield f"many {piece}", piece * 400


def megabytes():
    for piece in ("1", "a", " ", "{", "}", "{}", "\\", r"\boxed{", r"\frac", "1+", "1,", "é", "\n",
                  "\t", "$", "1 and ", "=", "((", "-"):
        yield f"60 KB of {piece!r}", "3" + piece * (60_000 // len(piece.encode())) + "4"
        yield f"2 MB of {piece!r}", "3" + piece * (2_000_000 // len(piece.encode()))


def look_alikes():
    for name, zero in dict(fullwidth=0xff10, arabic=0x660, devanagari=0x966, bold=0x1d7ce,
                           double=0x1d7d8,
                           superscript=0x2070).items():
        yield name, "".join(chr(zero + int(digit)) for digit in "7919")
    for name, text in dict(cyrillic="х+1", greek="ο", roman="Ⅻ", fraction="½", minus="−7919",
                           division="7919∕2", circled="⑦⑨",
                           ohm="Ω",
                           multiplication="7919✕1", tags="\U000e0037\U000e0039",
                           variation="7\ufe0f9\ufe0f1\ufe0f9\ufe0f").items():
        yield name, text


def invisible():
    for code in (0x200b, 0x200d, 0x202e, 0x2066, 0xfeff, 0xad, 0x2028, 0x85, 0xa0, 0x3000, 0x300,
                 0xfffd, 0xfffe):
        yield f"between {code:x}", chr(code).join("7919")
        yield f"around {code:x}", chr(code) * 50 + "79" + chr(code) * 50


def controls():
    for code in [*range(0, 32, 3), 127, 0x9b]:
        yield f"control {code}", f"79{chr(code)}19"
    for name, text in dict(half="\ud800", other="\udc00", swapped="\udc00\ud800",
                           many="\ud835" * 400, inside="79\udfff19").items():
        yield f"surrogate {name}", text


def series():
    for operator, term in itertools.product([r"\sum_{n=1}^{\infty}", r"\prod_{n=1}^{\infty}",
                                             r"\sum_{n=1}^{10^9}",
                                             r"\sum_{n=1}^{10^9}\sum_{m=1}^{n}"],
                                            [r"\frac{1}{n^3+1}", r"\frac{(-1)^n}{\ln(n+1)}",
                                             r"\sin(n^2)", "n!", "n^{n}"]):
        yield f"{operator} {term}", operator + term


def calculus():
    for text in (r"\int_0^{\infty} \frac{\sin(x^2)e^{-x}}{x^5+1} dx", r"\int e^{e^{e^x}} dx",
                 r"\int_0^1\int_0^1\int_0^1 \frac{1}{1-xyz} dxdydz",
                 r"\int \sqrt{\tan x+\sqrt{\sin x}} dx", r"\lim_{x\to\infty} (\sin x)^{x!}",
                 r"\lim_{n\to\infty}\sum_{k=1}^{n}\frac{1}{k^k}",
                 r"\frac{d}{dx} x^{x^{x^{x^{x^x}}}}", r"\frac{d^{50}}{dx^{50}} e^{\sin(x^2)}",
                 r"\lim_{x\to 0}\frac{\tan(\sin x)-\sin(\tan x)}{x^7}",
                 r"\int_{-\infty}^{\infty} e^{-x^4+x^3}\cos(x^5) dx"):
        yield text, text
        yield f"5+{text}", f"5+{text}-{text}"


def matrices():
    for n, element in itertools.product([4, 40], ["1", "x", "x_{%d}", r"\sqrt{%d}"]):
        def cells(n=n, element=element):
            return r"\\".join("&".join(element % (i * n + j) if "%" in element else element
                                       for j in range(n)) for i in range(n))
        yield f"{n} of {element}", rf"\begin{{pmatrix}}{cells()}\end{{pmatrix}}"
        yield f"determinant {n} of {element}", rf"\det\begin{{pmatrix}}{cells()}\end{{pmatrix}}"
        yield f"power {n} of {element}", rf"\begin{{pmatrix}}{cells()}\end{{pmatrix}}^{{999}}"


def collections():
    for n in 30, 3000:
        yield f"set of {n}", r"\{" + ",".join(map(str, range(n))) + r"\}"
        yield f"set of {n} roots", r"\{" + ",".join(rf"\sqrt{{{i}}}" for i in range(n)) + r"\}"
        yield f"union of {n}", r"\cup".join(f"[{2 * i},{2 * i + 1}]" for i in range(n))
        yield f"intersection of {n}", r"\cap".join(f"(-x_{{{i}}},{i})" for i in range(n))
        yield f"difference of {n}", r"\mathbb{R}\setminus\{" + ",".join(rf"\pi^{{{i}}}"
                                                                        for i in range(n)) + r"\}"
        yield f"plus-minus {n}", r"\pm 1" * n


def patterns():
    """Against math-verify's own regular expressions."""
    for piece in ("$1$ and ", "$", "$ $,", "$$", r"\(1\),", r"\[1\] or ", " [1] ,", "answer: ",
                  "answer is final answer is ",
                  "final answer is $",
                  r"\frac{1}{1}", "1.1.1", "1,", ", and or", "1=", r"$\boxed{1}$,", r"\text{and}",
                  "%", "percent", "infinf",
                  " sqrt", "^(", "sqrt("):
        yield f"{piece!r}", piece * 150
        yield f"{piece!r} open", (piece + " ") * 1000 + "\\"


def code():
    for i, text in enumerate(["__import__('os').system('touch {p}')", "open('{p}','w')",
                              "exec('open(\"{p}\",\"w\")')",
                              "().__class__.__bases__[0]", "lambda: open('{p}', 'w')",
                              "[open('{p}','w') for _ in [1]]",
                              r"\text{{__import__('os').system('touch {p}')}}",
                              "__builtins__", "sympify('open(\"{p}\",\"w\")')",
                              "x.__init__.__globals__",
                              "eval(compile('1','','eval'))",
                              "S('__import__(\"os\").system(\"touch {p}\")')",
                              "1;import os;os.system('touch {p}')",
                              "$(touch {p})", "`touch {p}`",
                              "| touch {p}", r"\write18{{touch {p}}}", r"\input{{{p}}}",
                              r"\openout1={p}",
                              r"\directlua{{os.exit()}}"]):
        yield f"code {i}", text.format(p=PLACE)


def macros():
    for text in (r"\def\x{\x\x}\x", r"\let\x\x \x", r"\newcommand{\a}{\a}\a",
                 r"\loop\iftrue\repeat",
                 r"\expandafter\csname end\endcsname",
                 r"\catcode`\{=12", r"\begin{verbatim}}\end{verbatim}", r"\verb|}|",
                 r"\hspace{999999999pt}", r"\unicode{x37}",
                 r"\char55", r"\undefined"):
        yield text, text


def formats():
    for text in ("{0}", "{gold}", "%s%s%n", "%d", "${7*7}", "{{7*7}}", "#{7*7}", "\\1", "\\g<0>",
                 r"\g<gold>",
                 "(?P<first_latexBoxed>7)", "{!r}", "%(gold)s"):
        yield text, text
        yield text * 300, text * 300


def protocol():
    """Against the lines between the processes."""
    for text in ('"]\n[1, 9, "7", "7"]', "\n", "\n\n\n", '\n[0, 3.0, "1", "1"]\n', '", "7"]', "\\",
                 '\\"', "\\u0000", "01", "1",
                 "\xff1\xff1", "\x001", "null", "[]", "r", "\udcff1", "\r\n1", "\x04", "\x1a",
                 "NaN", "-Infinity"):
        yield repr(text), "\n" + text
        yield f"{text!r} x 500", text * 500 + "+"


def slow_equalities():
    for n in 3, 7:
        roots = [rf"\sqrt{{{i}+\sqrt{{{i + 1}}}}}" for i in range(2, 2 + n)]
        yield f"radicals {n}", "+".join(roots) + "-" + "-".join(roots)
        powers = 3 * n, 3 * n, n, n
        yield f"trigonometry {n}", r"\sin^{%d} x\cos^{%d} y+\tan(%dx)\cot(%dy)" % powers
        yield f"Gamma {n}", rf"\frac{{(n+{n})!}}{{n!}}+\binom{{2n}}{{n}}^{{{n}}}"
        yield f"logarithms {n}", "+".join(rf"\log_{{{i}}}(x^{{{i}}}+{i})" for i in range(2, 2 + n))
        yield f"roots {n}", "+".join(rf"\sqrt[{i}]{{x^{{{i}}}+{i}}}" for i in range(2, 2 + n))


def piecewise():
    for n in 2, 50, 1000:
        yield f"cases {n}", r"\begin{cases}" + r"\\".join(f"{i} & x>{i}"
                                                          for i in range(n)) + r"\end{cases}"
        yield f"equations {n}", r"\begin{cases}" + r"\\".join(f"x_{{{i}}}^2={i}"
                                                              for i in range(n)) + r"\end{cases}"
        yield f"chain {n}", "<".join(f"x_{{{i}}}" for i in range(n))
        yield f"equalities {n}", "=".join(f"x^{{{i}}}" for i in range(n))


def polynomials():
    for n in 40, 2000:
        yield f"dense {n}", "+".join(f"{i}x^{{{i}}}" for i in range(n))
        yield f"factors {n}", "".join(f"(x-{i})" for i in range(n))
        yield f"letters {n}", "(" + "+".join(f"x_{{{i}}}" for i in range(n)) + ")^{30}"
        yield f"quotient {n}", rf"\frac{{x^{{{n}}}-1}}{{x-1}}" * 3


def numbers():
    for n in 4000, 60_000, 100_000:
        yield f"digits {n}", "7" * n
        yield f"decimals {n}", "0." + "7" * n
        yield f"separators {n}", ",".join(["777"] * (n // 4))
        yield f"periodic {n}", rf"0.\overline{{{'7' * n}}}"
        yield f"exponent {n}", f"1e{'9' * n}"


def continued_fractions():
    for n in 20, 200, 3000:
        yield f"fraction {n}", r"1+\frac{1}{" * n + "x" + "}" * n
        yield f"slashes {n}", "1/(1+" * n + "x" + ")" * n
        yield f"roots {n}", r"\sqrt{1+" * n + "x" + "}" * n


def boxes():
    for n in 2, 50, 2000:
        yield f"nested {n}", r"\boxed{" * n + "79" + "}" * n
        yield f"in text {n}", r"\text{\boxed{" * n + "79" + "}}" * n
        yield f"fbox {n}", r"\fbox{" * n + "79" + "}" * n


def rounding():
    for name, (left, right) in dict(floor=(r"\lfloor ", r"\rfloor "),
                                    ceiling=(r"\lceil ", r"\rceil "),
                                    absolute=(r"|x-", "|")).items():
        for n in 2, 12, 100:
            yield f"{name} {n}", left * n + r"\pi^{999}" + right * n
    for n in 2, 12, 100:
        yield f"mod {n}", r"x \bmod (" * n + "7" + ")" * n
        yield f"maximum {n}", r"\max(x," * n + "7" + ")" * n


# what the code would write, if it ran
PLACE = os.path.join(tempfile.gettempdir(), f"isocompute-{os.getpid()}")
GENERATORS = [towers, factorials, exponents, binomials, nesting, unbalanced, megabytes, look_alikes,
              invisible, controls, series,
              calculus,
              matrices, collections, patterns, code, macros, formats, protocol, slow_equalities,
              piecewise, polynomials, numbers,
              continued_fractions, boxes, rounding]
GOLDS = ["7919", r"\frac{7919}{7907}", "x^2+7919x", r"\{7919,7907\}", "[7907,7919]",
         r"\begin{pmatrix}7919&1\\0&1\end{pmatrix}",
         r"\sqrt{7919}", "x=7919", "(7919,7907,1)", "x>7919"]
LIMIT, SLACK = 0.5, 1.0  # CPU seconds of an answer, and those of the next process


def attacks():
    """[(generator, kind, answer), ...]: every one another text, every second of those there are,
    since a hang costs its limit."""
    found = {answer: (generator.__name__, kind, answer) for generator in GENERATORS
             for kind, answer in generator()}
    return list(found.values())[::2]


def test_hostile_answers(make_pool, monkeypatch):
    """None is right, each within its limit; the pool keeps its processes, its memory and its word
    about honest answers beside."""
    pool = make_pool(2)
    hostile = attacks()
    names = [words[:2] for words in hostile]
    assert len(GENERATORS) >= 20 and len(hostile) >= 200
    before = {process.pid for process in servers(pool)}
    took, peak, done = {}, {}, threading.Event()
    exchange = pool.exchange

    def timed(process, *words):
        start = cpu(process.pid)
        said = exchange(process, *words)
        took[words] = cpu(process.pid) - start
        return said

    def watch():
        while not done.wait(0.1):
            for pid in before | {pid for pid, (parent, *_) in processes().items()
                                 if parent in before}:
                peak[pid] = max(peak.get(pid, 0), memory(pid, "VmPeak:"))
    monkeypatch.setattr(pool, "exchange", timed)
    hostile = [(random.Random(i).choice(GOLDS), rf"\boxed{{{answer}}}")
               for i, (*_, answer) in enumerate(hostile)]
    rss = memory("self", "VmRSS:")
    watcher = threading.Thread(target=watch)
    watcher.start()
    verdicts, kept = [], []
    try:
        for i in range(0, len(hostile), 10):
            verdicts += check_math(hostile[i:i + 10], dict(verify_s=LIMIT, verify_bytes=65536))
            beside = PAIRS[2 * i // 5:2 * i // 5 + 4]
            honest = check_math([(gold, box(answer)) for gold, answer, _ in beside], CFG)
            kept += [verdict == right for verdict, (*_, right) in zip(honest, beside)]
    finally:
        done.set(), watcher.join()
    assert all(kept) and len(kept) > 100
    assert not [name for name, verdict in zip(names, verdicts) if verdict == 1]
    assert not [(words, seconds) for words, seconds in took.items() if words[0] == LIMIT
                and seconds > LIMIT + SLACK]
    assert max(took.values()) > LIMIT / 2
    assert {0, TIMEOUT, ERROR} <= set(verdicts)
    assert {process.pid for process in servers(pool)} == before
    assert all(len(children(pid)) == 1 for pid in before)
    assert len(peak) > 4 and max(peak.values()) <= sandbox.Pool.MEMORY
    assert memory("self", "VmRSS:") - rss < 64 * 2 ** 20

    long = [(gold, text) for gold, text in hostile if len(text.encode(errors="replace")) > 1024
            + len(r"\boxed{}")]
    bare = [(gold, text[len(r"\boxed{"):-1]) for gold, text in hostile]
    assert len(long) > 50
    assert 1 not in check_math(long + bare, dict(verify_s=LIMIT, verify_bytes=1024))
    assert not os.path.exists(PLACE)


# -------------------------------------------------------------------------------------------------
# Processes that die

HANGS = "9^{9^{9^{9^9}}}+x"  # in C code of an integer power


def busy(pool):
    """A hanging answer under way with 60 s to go -> the thread, and the list that its verdict will
    be in."""
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.extend(pool.verify([("7919", HANGS)], 60)))
    thread.start()
    until(lambda: pool.free.empty())
    time.sleep(0.3)  # until it is in the power
    return thread, verdicts


@pytest.mark.parametrize("who", ["child", "server", "both"])
def test_killed_while_it_had_nothing_to_do(who, make_pool):
    """The next verdicts are right; where the server is gone, one answer may be an error on the
    way."""
    pool = make_pool(1)
    (process,) = servers(pool)
    (child,) = children(process.pid)
    for pid in dict(child=[child], server=[process.pid], both=[process.pid, child])[who]:
        os.kill(pid, signal.SIGKILL)
    until(lambda: child not in children(process.pid))
    time.sleep(0.2)
    verdicts = pool.verify([(str(i), str(i % 3)) for i in range(9)], 20)
    true = [1] * 3 + [0] * 6
    assert verdicts[1:] == true[1:] and verdicts[0] in (1, ERROR)
    assert verdicts[0] == 1 or who != "child"


def test_a_limit_is_over_with_its_answer(one):
    """A process that has answered in time is not ended while it waits."""
    assert one.verify([("5", "5")], 0.5) == [1]
    (process,) = servers(one)
    before = children(process.pid)
    time.sleep(1)
    assert children(process.pid) == before


PYTHON = """
import types
from core import sandbox
sandbox.Pool.CLOCK = 16
def score(gold, answer):
    names = {}
    exec(answer, names)
    return names.get("score", 1)
sandbox.library = lambda kind: types.SimpleNamespace(load=lambda: score)
sandbox.serve("math")"""


class Naive(sandbox.Pool):
    """A pool whose library runs answers as Python, which may set `score`."""

    def start(self):
        return subprocess.Popen([sys.executable, "-c", PYTHON], cwd=ROOT, bufsize=0,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                start_new_session=True)


def test_the_limit_is_of_the_cpu():
    """An answer that waits, as it does where others use the cores, is graded; one that works for
    longer is ended, and so is one that waits for CLOCK times the limit."""
    pool = Naive("math", 1)
    waits, works, never = "time.sleep(1)", "while True: pass", "time.sleep(99)"
    answers = [("", f"import time\n{text}") for text in (waits, works, never, "1")]
    assert pool.verify(answers, 0.25) == [1, TIMEOUT, TIMEOUT, 1]
    close(pool)


@pytest.mark.parametrize("who", ["child", "server", "both"])
def test_killed_at_work(who, make_pool):
    """The answer it worked on is an error at once, long before its limit, the next verdicts are
    right, and nothing of it stays."""
    pool = make_pool(1)
    fds = len(os.listdir("/proc/self/fd"))
    (process,) = servers(pool)
    (child,) = children(process.pid)
    thread, verdicts = busy(pool)
    for pid in dict(child=[child], server=[process.pid], both=[child, process.pid])[who]:
        os.kill(pid, signal.SIGKILL)
    thread.join(20)
    assert verdicts == [ERROR]
    assert pool.verify([("5", "5"), ("5", "6")], 20) == [1, 0]
    assert len(os.listdir("/proc/self/fd")) == fds
    assert not [pid for pid, (parent, _, state) in processes().items() if parent == os.getpid()
                and state == "Z"]


@pytest.mark.parametrize("work", [False, True])
def test_stopped(work, make_pool, monkeypatch):
    """Where the kernel's timer cannot end it, or nobody is there to say so, the pool does, GRACE
    after the limit."""
    monkeypatch.setattr(sandbox.Pool, "GRACE", 0.5)
    monkeypatch.setattr(sandbox.Pool, "CLOCK", 2)
    pool = make_pool(1)
    (process,) = servers(pool)
    (child,) = children(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    if not work:
        os.kill(child, signal.SIGSTOP)
    start = time.monotonic()
    assert pool.verify([("7919", HANGS if work else "7919")], 0.5) == [ERROR]
    assert pool.verify([("5", "5" + " " * 10 ** 6), ("5", "6")], 20) == [1, 0]
    assert time.monotonic() - start < 100 and process.returncode == -signal.SIGKILL


def test_a_full_pipe_of_a_stopped_process(make_pool, monkeypatch):
    """An answer larger than a pipe does not hold us where nobody reads it."""
    monkeypatch.setattr(sandbox.Pool, "GRACE", 0.5)
    monkeypatch.setattr(sandbox.Pool, "CLOCK", 2)
    pool = make_pool(1)
    (process,) = servers(pool)
    for pid in [process.pid, *children(process.pid)]:
        os.kill(pid, signal.SIGSTOP)
    assert pool.verify([("5", "5" * 10 ** 6)], 0.5) == [ERROR]
    assert pool.verify([("5", "5"), ("5", "6")], 20) == [1, 0]


def test_killing_at_random(make_pool):
    """Children and servers killed all the time: a verdict is the true one or a fault, never that
    of another answer."""
    pool, over = make_pool(2), threading.Event()
    rng = random.Random(0)

    def kill():
        while not over.wait(rng.uniform(0.05, 0.3)):
            sessions = {process.pid for process in started}
            alive = [pid for pid, (_, session, state) in processes().items() if session in sessions
                     and state != "Z"]
            victims = [pid for pid in alive if (pid in sessions) == (rng.random() < 0.05)]
            if victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
    started, start = servers(pool), pool.start

    def noted():
        started.append(start())
        return started[-1]
    pool.start = noted
    killer = threading.Thread(target=kill)
    killer.start()
    pairs = [(str(i), f"{i}+{1000 * (i % 3 % 2)}") for i in range(1500)]
    true = [0 if i % 3 % 2 else 1 for i in range(1500)]
    try:
        verdicts = pool.verify(pairs, 20)
    finally:
        over.set(), killer.join()
    faults = sum(verdict in (ERROR, TIMEOUT) for verdict in verdicts)
    assert all(verdict in (truth, ERROR, TIMEOUT) for verdict, truth in zip(verdicts, true))
    assert 0 < faults < 500
    settled = pool.verify([(f"{i}", f"{i}+0") for i in range(2000, 2020)], 20)
    # what was killed last, each process may still have to notice
    assert settled.count(1) >= 18
    assert pool.verify(pairs[:100], 20) == true[:100]


PARENT = """
import os, signal, sys, threading, time
from core import sandbox
{before}
pool = sandbox.Pool("math", 2)
print(*pool.verify([("5", "5"), ("5", "6"), ("7919", "{hangs}")], 1.0), sep="\\n", flush=True)
{after}
"""


def run_parent(before="", after=""):
    return subprocess.Popen([sys.executable, "-c",
                             PARENT.format(before=before, after=after, hangs=HANGS)], cwd=ROOT,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("before", [
    "signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGCHLD])"])
def test_signals_that_the_parent_ignores(before):
    parent = run_parent(before)
    out, err = parent.communicate(timeout=60)
    assert out.split() == ["1.0", "0.0", str(TIMEOUT)] and not err


def test_nothing_stays_when_the_main_process_is_killed():
    """kill -9 at work: no process of the pool outlives the limit of its answer."""
    again = f"""
threading.Thread(target=pool.verify, args=([('1', '{HANGS}'), ('2', '{HANGS}')], 2.0)).start()
time.sleep(1)
print('busy', flush=True)"""
    parent = run_parent(after=again)
    said = [parent.stdout.readline().strip() for _ in range(4)]
    assert said == ["1.0", "0.0", str(TIMEOUT), "busy"]
    below = {pid for pid, (up, *_) in processes().items() if up == parent.pid}
    assert len(below) == 2
    parent.kill(), parent.communicate()
    until(lambda: not [pid for pid, (_, session, state) in processes().items() if session in below
                       and state != "Z"])


def test_ctrl_c(make_pool, monkeypatch):
    """It ends the wait, not the pool."""
    pool, asked = make_pool(1), []
    exchange = pool.exchange

    def interrupted(*given):
        asked.append(given)
        if len(asked) == 2:  # one answer is graded, 18 wait
            os.kill(os.getpid(), signal.SIGINT)
        return exchange(*given)
    monkeypatch.setattr(pool, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.verify([("7919", HANGS + "1" * i) for i in range(20)], 1.0)
    assert pool.verify([("5", "5"), ("5", "6")], 20) == [1, 0]
    assert len(asked) < 20, "answers that nobody waits for are not graded"


def test_children_are_replaced():
    """A child grades one answer after another until it has left much in memory, or has ended; what
    is no score is an error."""
    pool = Naive("math", 1)
    which = "import os; score = os.getpid() / 2 ** 30"
    first, second, *ends, third = pool.verify([("a", which), ("b", which), ("", "exit()"),
                                               ("", "raise MemoryError"), ("c", which)], 20)
    assert 0 < first == second < third < 1 and ends == [ERROR, ERROR]
    large, fourth = pool.verify([("", "large = bytearray(3 * 2 ** 28)"), ("d", which)], 20)
    assert large == 1 and fourth > third
    scores = ["score = 0.25", "score = 1.5", "score = -1", "score = float('nan')", "score = 'no'"]
    assert pool.verify([("", text) for text in scores], 20) == [0.25, ERROR, TIMEOUT, ERROR, ERROR]
    close(pool)


def test_memory_is_capped(one):
    """A child can map MEMORY and no more, nor leave a core; where that was not enough, the answer
    is an error."""
    assert one.verify([("5", "5")], 20) == [1]  # it is there, with its limits
    (process,) = servers(one)
    for pid in [process.pid, *children(process.pid)]:
        limits = {line[:26].strip(): line[26:].split()[0] for line in open(f"/proc/{pid}/limits")}
        assert (limits["Max address space"], limits["Max core file size"]) == (str(2 ** 30), "0")
    pool = Naive("math", 1)
    assert pool.verify([("", "bytearray(2 ** 30)"), ("", "1")], 20) == [ERROR, 1]
    close(pool)


def test_math_verify_is_missing(monkeypatch, tmp_path):
    """One line that says what to install, each time it is asked."""
    (tmp_path / "math_verify.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = sandbox.Pool("math", 1)
    for _ in range(2):
        with pytest.raises(BadInput, match="math-verify is not installed.*requirements.txt"):
            pool.verify([("5", "5")], 1.0)
    close(pool)


def test_three_files_grade_elsewhere(tmp_path):
    """verifier.py, core/sandbox.py and core/math_answers.py grade a pair in an empty folder."""
    for name in ("verifier.py", "core/sandbox.py", "core/math_answers.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    run = functools.partial(subprocess.run, capture_output=True, text=True, cwd=tmp_path.parent)
    for text, verdict in ((box("0.5"), "right"), (box("0.6"), "wrong"), ("0.5", "wrong")):
        done = run([sys.executable, tmp_path / "verifier.py", r"\frac{1}{2}", text])
        assert (done.stdout, done.returncode) == (f"{verdict}\n", 0), done
    code = (f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport verifier\n"
            "print(*verifier.check_math([('2', '\\\\boxed{1+1}'), ('2', '\\\\boxed{3}')]))\n"
            "print('config' in sys.modules)")
    done = run([sys.executable, "-c", code], env={**os.environ, "PYTHONSAFEPATH": "1"})
    assert done.stdout.split() == ["right", "wrong", "False"], done
    assert run([sys.executable, tmp_path / "verifier.py"]).returncode == 1


def test_a_new_entry_of_rewards_is_all_that_a_reward_needs(tmp_path):
    """A copy of the code with one more function and entry: the name works, no other file knows it.
    """
    for name in ("config.py", "core/sandbox.py", "core/math_answers.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    text = (ROOT / "verifier.py").read_text().replace("exact=exact,", "exact=exact, mine=mine,")
    mine = "\ndef mine(problem, text, cfg):\n    return 0.25 * ('#' in text)\n\n\nREWARDS ="
    (tmp_path / "verifier.py").write_text(text.replace("\nREWARDS =", mine, 1))
    code = ("import config, verifier\ncfg = config.parse(['--verifier=mine'])\n"
            "config.choose('verifier', cfg['verifier'], verifier.REWARDS)\n"
            "print(verifier.REWARDS[cfg['verifier']]({}, '# 1', cfg))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.stdout == "0.25\n", done


def test_a_gold_is_asked_for_its_value(one):
    """An empty answer asks whether any answer could equal the gold, other than the same text."""
    values = [r"\frac{5}{4}", "x^2=-4", r"\begin{pmatrix}x\\y\end{pmatrix}", "no solution", "B",
              r"\text{even}", "(1,2]", "1e+23", r"5.88\%", r"\infty", r"54^\circ", "3:30"]
    none = [r"\frac{1}{2", r"\frac{1}{0}", r"\left(1,2", r"\sqrt{", "x^{2", r"\frac{a}"]
    assert one.verify([(gold, "") for gold in values], 20) == [1] * len(values)
    assert 1 not in one.verify([(gold, "") for gold in none], 20)
