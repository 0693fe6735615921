#pragma once
// The reference backend: scalar loops in double (real = stat = f64), one function per operator, written to be obviously right. It
// is the yardstick of the other backends' tests and too slow to train with.

#include <memory>

#include "base/result.h"
#include "ops/backend.h"

namespace millrace::ops::ref {

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace millrace::ops::ref
