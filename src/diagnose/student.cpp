#include "diagnose/student.h"

#include <algorithm>
#include <cmath>

namespace millrace::diagnose {
namespace {

/// The continued fraction of the incomplete beta function, by Lentz's method; `x` below (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
    constexpr double kTiny = 1e-300, kClose = 1e-14;
    constexpr int kMostTerms = 10'000;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    double fraction = d;
    for (int m = 1; m < kMostTerms; ++m) {
        for (const bool even : {true, false}) {
            const double term = even ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                     : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
            d = 1 + term * d;
            c = 1 + term / c;
            d = 1 / (std::abs(d) < kTiny ? kTiny : d);
            if (std::abs(c) < kTiny) c = kTiny;
            fraction *= c * d;
        }
        if (std::abs(c * d - 1) < kClose) break;
    }
    return fraction;
}

/// Regularised: 0 at x = 0, 1 at x = 1.
double incomplete_beta(double x, double a, double b) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

}  // namespace

double student_p(double t, double freedom) {
    if (!std::isfinite(t)) return std::isnan(t) ? 1 : 0;
    return std::clamp(incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5), 0.0, 1.0);
}

double student_t(double p, double freedom) {
    double low = 0, high = 1e3;
    for (int halvings = 0; halvings < 60; ++halvings) {
        const double middle = (low + high) / 2;
        (student_p(middle, freedom) > p ? low : high) = middle;
    }
    return high;
}

}  // namespace millrace::diagnose
