"""Known-answer controls: exact closed forms, each with a proof that is checked when it is read.

One module per control (MATH 8 and 9, and the statements 2.4, 3.1, 3.5 that need one). Each offers
the construction, the closed form, and ``claims()``: what is claimed, with the steps that prove
it. Nothing here is floating point but the drawing of the fitted slopes.
"""
