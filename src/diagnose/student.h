#pragma once

namespace millrace::diagnose {

/// How often Student's t with so many degrees of freedom (any positive number) lies at least as far from 0 as `t`.
double student_p(double t, double freedom);

/// The t, up to 1000, for which student_p gives `p`.
double student_t(double p, double freedom);

}  // namespace millrace::diagnose
