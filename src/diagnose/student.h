#pragma once

namespace millrace::diagnose {

/// How often Student's t with so many degrees of freedom (any positive number) lies at least as far from 0 as `t`.
double student_p(double t, double freedom);

}  // namespace millrace::diagnose
