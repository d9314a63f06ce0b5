package main

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
)

// Amounts are quantities by resource name: cpu in thousandths, all else in whole units.
type Amounts map[string]int64

var (
	quantityForm = regexp.MustCompile(
		`^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?$`)
	quantityUnits = map[string]string{
		"": "1", "n": "1e-9", "u": "1e-6", "m": "1e-3",
		"k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18",
		"Ki": "1024", "Mi": "1048576", "Gi": "1073741824", "Ti": "1099511627776",
		"Pi": "1125899906842624", "Ei": "1152921504606846976",
	}
)

// parseQuantity returns a Kubernetes quantity such as "500m", "1.5Gi" or "129e6" times scale,
// rounded up to a whole number as upstream does.
func parseQuantity(text string, scale int64) (int64, error) {
	parts := quantityForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("%q is no quantity", text)
	}
	number, unit := parts[1], parts[2]
	factor, isUnit := quantityUnits[unit]
	if !isUnit { // "129e6": big.Rat reads the exponent as a part of the number
		number, factor = number+unit, "1"
	}
	value, factorValue := new(big.Rat), new(big.Rat)
	value.SetString(number)
	factorValue.SetString(factor)
	value.Mul(value, factorValue)
	value.Mul(value, new(big.Rat).SetInt64(scale))
	// Int.Div rounds down where the divisor is positive, and a Rat's denominator is.
	up := new(big.Int).Div(new(big.Int).Neg(value.Num()), value.Denom())
	up.Neg(up)
	if !up.IsInt64() {
		return math.MaxInt64, nil
	}
	return up.Int64(), nil
}

// parseAmounts returns quantities as numbers.
func parseAmounts(quantities map[string]string) (Amounts, error) {
	amounts := make(Amounts, len(quantities))
	for name, text := range quantities {
		scale := int64(1)
		if name == "cpu" {
			scale = 1000
		}
		amount, err := parseQuantity(text, scale)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		amounts[name] = amount
	}
	return amounts, nil
}

// add adds other, times sign.
func (a Amounts) add(other Amounts, sign int64) {
	for name, amount := range other {
		a[name] += sign * amount
	}
}

// raise takes the larger of both amounts of each resource.
func (a Amounts) raise(other Amounts) {
	for name, amount := range other {
		if amount > a[name] {
			a[name] = amount
		}
	}
}
