// Kubernetes' quantities: "500m", "2", "1.5Gi", "129e6".
'use strict';

const FORM = /^([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,3})|([numkMGTPE]?|[KMGTPE]i))$/;
const POWERS = { n: -9, u: -6, m: -3, '': 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const BINARY = ['Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];

/** Return a quantity times `scale` as a whole number, rounded up as upstream does. */
function quantity(text, scale = 1) {
  const [form, sign, whole, fraction, exponent, suffix] = FORM.exec(text) ?? [];
  if (form === undefined || whole + fraction === '') throw new Error(`no quantity: ${text}`);
  const binary = BINARY.indexOf(suffix) + 1;
  const tens = Number(exponent ?? (binary ? 0 : POWERS[suffix])) - fraction.length;
  const shifted = BigInt(whole + fraction) * BigInt(scale) * 1024n ** BigInt(binary)
    * 10n ** BigInt(Math.max(tens, 0));
  const divisor = 10n ** BigInt(Math.max(-tens, 0));
  const units = sign === '-' ? -(shifted / divisor) : (shifted + divisor - 1n) / divisor;
  return Number(units);
}

/** Return a map of quantities as numbers: cpu in thousandths, all else in whole units. */
const amounts = (quantities) => Object.fromEntries(Object.entries(quantities ?? {}).map(
  ([name, text]) => [name, quantity(text, name === 'cpu' ? 1000 : 1)],
));

module.exports = { amounts, quantity };
