#include "ops/cuda/context.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::ops::cuda {

base::Error cuda_error(cudaError_t code, const std::string& what) {
    return base::Error{fmt::format("{} failed: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code))};
}

bool Context::reads_early(std::initializer_list<const tensor::Operand*> operands) const {
    const auto launches = [](const Bound& b) {  // a record without elements may launch nothing
        for (int slot = 0; slot < b.record->slot_count(); ++slot)
            if (b.record->writes(slot) && b[slot].present() && b[slot].count() > 0) return true;
        return false;
    };
    // A copy of an operand is written by the launch in front of this one.
    const auto is_own = [&](const tensor::Operand* o) {
        const auto& own = records[at].operands;
        return !o->present() || std::any_of(own.begin(), own.end(), [&](const tensor::Operand& s) { return s.data == o->data; });
    };
    if (!std::all_of(operands.begin(), operands.end(), is_own)) return false;
    for (std::size_t before = at; before > border;) {
        const Bound& record = records[--before];
        if (record.condition.data != records[at].condition.data) return true;  // nothing goes on behind the end of a region
        if (!launches(record)) continue;
        return std::none_of(operands.begin(), operands.end(),
                            [&](const tensor::Operand* o) { return o->present() && uses->is_written(*o, before, at); });
    }
    return false;
}

base::Status raise_shared_memory(const Context& c, const void* kernel) {
    // The limit leaves a kibibyte to what a kernel declares itself; a kernel with more gets so much less.
    cudaFuncAttributes declared{};
    cudaError_t code = cudaFuncGetAttributes(&declared, kernel);
    const std::size_t bytes = c.shared_limit - (std::max<std::size_t>(declared.sharedSizeBytes, 1024) - 1024);
    if (code == cudaSuccess)
        code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (code != cudaSuccess) return cuda_error(code, fmt::format("raising a kernel's shared memory to {} bytes", bytes));
    return base::ok();
}

namespace {

base::Result<DeviceTable> allocate_table(const Context& c, std::size_t bytes) {
    c.table_bytes += bytes;
    void* data = nullptr;
    if (auto code = cudaMalloc(&data, bytes); code != cudaSuccess)
        return cuda_error(code, fmt::format("allocating {} bytes for a kernel", bytes));
    // At process exit the driver may be gone already; it has then freed everything itself.
    return DeviceTable(data, [](void* held) { (void)cudaFree(held); });
}

}  // namespace

base::Result<DeviceTable> upload_table(const Context& c, const void* host, std::size_t bytes) {
    MILLRACE_LET(table, allocate_table(c, bytes));
    // On the compute stream, which does not wait for the legacy one.
    if (auto code = cudaMemcpyAsync(table.get(), host, bytes, cudaMemcpyHostToDevice, c.stream); code != cudaSuccess)
        return cuda_error(code, "copying a table");
    if (auto code = cudaStreamSynchronize(c.stream); code != cudaSuccess) return cuda_error(code, "copying a table");
    return table;
}

base::Result<DeviceTable> zero_table(const Context& c, std::size_t bytes) {
    MILLRACE_LET(table, allocate_table(c, bytes));
    if (auto code = cudaMemsetAsync(table.get(), 0, bytes, c.stream); code != cudaSuccess)
        return cuda_error(code, "clearing a kernel's memory");
    return table;
}

}  // namespace millrace::ops::cuda
