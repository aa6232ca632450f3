"""Every testable statement of the theory as an executable check, with wrong variants to refute.

``catalogue.select`` gives the lemmas, ``examine.examine`` tries one; ``strategies`` is a library of
hypothesis strategies of its own (docs/lemmas.md). The statements are in one module per section of
the theory: target, slack, softmax, upper, lower, gibbs, gauges, controls.
"""
