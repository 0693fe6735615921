#pragma once
// operator new of the whole test program, counted on demand. In a file of its own: inlined into a test the compiler would
// complain.

namespace millrace::train {

void start_counting_allocations();
/// Calls of operator new in any thread since start_counting_allocations().
long stop_counting_allocations();

}  // namespace millrace::train
