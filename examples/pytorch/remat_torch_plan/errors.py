# SPDX-License-Identifier: BSL-1.0
"""The errors that this package raises. Each message says what is wrong, where, and what would be right."""


class PlanError(RuntimeError):
    """The step cannot be planned or run as asked.

    `says_why`: where a plan by regions fails with it, its message is what the caller is to see, in place of why the whole cannot be traced."""

    says_why = True


class CaptureError(PlanError):
    """The step cannot be traced into one graph: the message has the module's path and the line.

    `reason`: the message without the advice at its end."""

    says_why = False

    def __init__(self, reason, advice=""):
        super().__init__(reason + advice)
        self.reason = reason


class TooManyPlansError(PlanError):
    """The step has been traced as often as it may be; a `PlannedStep` then runs such calls in eager PyTorch."""


class BudgetError(PlanError):
    """No schedule within the budget exists, or none was found in time.

    `least`: the least budget for which one was found, in bytes; None where none was looked for."""

    def __init__(self, text, least=None):
        super().__init__(text)
        self.least = least


class PlanWarning(UserWarning):
    """The step is planned, with a limit that its user must know of."""
