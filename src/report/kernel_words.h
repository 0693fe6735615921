#pragma once
// The table of kernels and the ledger of the run in words that every form of the report shares.

#include <string>
#include <vector>

#include "diagnose/answer/diagnosis.h"

namespace millrace::report {

/// "softmax<float>": without its return type, its parameters, the framework's namespaces and loops.
std::string kernel_text(std::string_view name);

/// A row of the table; `unknown` stands for what is not known.
struct KernelCells {
    std::string share, calls, type, tensor, waves, place, name;
};
KernelCells cells_of(const diagnose::KernelTable& table, const diagnose::KernelRow& row, const char* unknown = "not known");

/// "tensor cores used in 61 % of its time (not known: 4 %)": of the GPU's
std::string tensor_text(const diagnose::KernelTable& table);
/// "12.4 %, 7 element-wise kernels in a row at train.py:41: add, mul, ..."
std::string chain_text(const diagnose::KernelTable& table, const diagnose::KernelChain& chain);
/// "The run took 61.2 s: training 40.0 s, ..."; empty where not even that is known.
std::string run_text(const diagnose::RunLedger& run);

}  // namespace millrace::report
