"""Selectors of devices: each expression is evaluated once for a device."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from services.kube.devices import Device, SelectorError


class DeviceSelectors:
    """Evaluates expressions on devices; a result is kept while the device exists.

    multiple: whether `device.allowMultipleAllocations` is declared (DRAConsumableCapacity).
    `evaluations` counts how often an expression was evaluated.
    """

    def __init__(self, *, multiple: bool) -> None:
        self._multiple = multiple
        self._results: WeakKeyDictionary[Device, dict[str, bool | SelectorError]] = (
            WeakKeyDictionary()
        )
        self.evaluations = 0

    def __call__(self, expression: str, device: Device, driver: str) -> bool:
        """Return whether a device of `driver` meets an expression. Raises SelectorError."""
        results = self._results.get(device)
        if results is None:
            results = self._results[device] = {}
        result = results.get(expression)
        if result is None:
            self.evaluations += 1
            result = results[expression] = self._evaluated(expression, device, driver)
        if isinstance(result, SelectorError):
            raise result
        return result

    def _evaluated(self, expression: str, device: Device, driver: str) -> bool | SelectorError:
        from services.cel.expressions import compiled_expression  # noqa: PLC0415 - CEL, when needed

        compiled = compiled_expression(expression, multiple=self._multiple)
        if isinstance(compiled, SelectorError):
            return compiled
        try:
            return compiled.evaluate(device, driver)
        except SelectorError as error:
            return error
