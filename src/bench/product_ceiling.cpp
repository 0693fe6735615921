#include "bench/product_ceiling.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/philox.h"
#include "bench/bench.h"
#include "ops/dense/dense.h"
#include "tensor/element.h"

namespace millrace::bench {
namespace {

constexpr int kWindows = 7;
constexpr std::size_t kPattern = std::size_t{1} << 16;  ///< random elements, repeated

std::vector<std::byte> random_elements(tensor::DType dtype) {
    std::vector<std::byte> bytes(kPattern * tensor::size_of(dtype));
    for (std::size_t i = 0; i < kPattern; ++i) {
        const float value = base::random_normal(11, 0, 0, 0, i);
        tensor::write_element(bytes.data() + i * tensor::size_of(dtype), dtype, static_cast<double>(value));
    }
    return bytes;
}

}  // namespace

std::int32_t ceiling_size(ops::DeviceKind device) { return device == ops::DeviceKind::cuda ? 8192 : 1536; }

base::Result<double> product_ceiling(ops::Backend& backend, tape::Precision precision, std::int32_t size, double window_ms,
                                     const base::Clock& clock) {
    namespace at = ops::linear_dgrad;
    const tensor::DType real = tape::real_of(precision);
    const std::size_t bytes = static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * tensor::size_of(real);
    const std::vector<std::byte> pattern = random_elements(real);
    std::vector<std::unique_ptr<ops::Memory>> memory;
    ops::Record record{&ops::linear_dgrad::kDef, ops::LinearGradParams{}, {}, 0, "ceiling"};
    ops::Bound bound;
    for (const int slot : {at::dz, at::w, at::dx}) {
        MILLRACE_LET(matrix, backend.allocate(bytes));
        for (std::size_t begin = 0; slot != at::dx && begin < bytes; begin += pattern.size())
            backend.upload(matrix->data() + begin, pattern.data(), std::min(pattern.size(), bytes - begin));
        const std::int64_t stride = size, count = stride * stride;
        record.slots[static_cast<std::size_t>(slot)] = {slot, real, 1, 1, size, size, 0, count, count, stride};
        bound.operands[static_cast<std::size_t>(slot)] = {matrix->data(), real, 1, 1, size, size, count, count, stride};
        memory.push_back(std::move(matrix));
    }
    bound.record = &record;
    MILLRACE_LET(kernels, backend.prepare({&bound, 1}, {}));
    const auto window = [&](int count) {
        const std::chrono::nanoseconds begin = clock.now();
        for (int i = 0; i < count; ++i)
            for (const auto& kernel : kernels) kernel->run();
        backend.synchronize();
        return std::chrono::duration<double, std::milli>(clock.now() - begin).count() / count;
    };
    window(1);
    const int count = static_cast<int>(std::clamp(window_ms / window(1), 1.0, 10000.0));
    std::vector<double> times;
    times.reserve(kWindows);
    for (int i = 0; i < kWindows; ++i) times.push_back(window(count));
    MILLRACE_TRY(backend.check());
    const double edge = size;
    return 2 * edge * edge * edge / (timing_of(times).median * 1e-3);
}

}  // namespace millrace::bench
