#pragma once
// Counts the CUDA calls of one thread by name, through CUPTI, which is looked for when the test runs.

#include <map>
#include <memory>
#include <string>

#include "base/result.h"

namespace millrace::testing {

using CallCounts = std::map<std::string, long>;  ///< function name, with the driver's version suffix where it has one

/// "cudaGraphLaunch x 100, cudaStreamSynchronize x 1"
std::string text_of(const CallCounts& counts);
/// How many calls have `part` in their name.
long calls_with(const CallCounts& counts, const std::string& part);

class ApiCounter {
public:
    /// One at a time in a process. The error says what is missing.
    static base::Result<std::unique_ptr<ApiCounter>> create();
    virtual ~ApiCounter() = default;

    /// Counts what the calling thread asks of CUDA from here on; earlier counts are dropped.
    virtual void start() = 0;
    virtual void stop() = 0;
    [[nodiscard]] virtual const CallCounts& runtime() const = 0;  ///< cuda*: what our code calls
    [[nodiscard]] virtual const CallCounts& driver() const = 0;   ///< cu*: what becomes of it
};

}  // namespace millrace::testing
