#include "ops/host_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

namespace millrace::ops {
namespace {

class HostMemory final : public Memory {
public:
    static constexpr std::align_val_t kAlignment{256};
    HostMemory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
    ~HostMemory() override { ::operator delete(data_, kAlignment); }
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;
    [[nodiscard]] std::byte* data() override { return data_; }
    [[nodiscard]] std::size_t size() const override { return size_; }

private:
    std::byte* data_;
    std::size_t size_;
};

class Region final : public Kernel {
public:
    Region(const tensor::Operand& flags, std::vector<std::unique_ptr<Kernel>> kernels)
        : flags_(flags), inner_(std::move(kernels)) {
        first = inner_.front()->first;
        count = inner_.size();
    }
    void run() noexcept override {
        bool wanted = false;
        for (int m = 0; m < flags_.k; ++m) wanted = wanted || *flags_.at<std::int32_t>(m) != 0;
        for (std::size_t i = 0; wanted && i < inner_.size(); ++i) inner_[i]->run();
    }

private:
    tensor::Operand flags_;
    std::vector<std::unique_ptr<Kernel>> inner_;
};

/// Number of records of a section from `first` on that name the same condition; 1 where none is named.
std::size_t region_length(std::span<const Bound> records, std::span<const Section> sections, std::size_t first) {
    const tensor::Operand& flags = records[first].condition;
    std::size_t end = first + 1;
    const auto same = [&] {
        return end < records.size() && records[end].condition.data == flags.data &&
               std::ranges::find(sections, end, &Section::first) == sections.end();
    };
    while (flags.present() && same()) ++end;
    return end - first;
}

/// Takes neighbours of a section with one condition (ops::Record::condition) together in a kernel that asks it. `kernels` holds
/// one per record.
void gather_regions(std::span<const Bound> records, std::span<const Section> sections,
                    std::vector<std::unique_ptr<Kernel>>& kernels) {
    std::vector<std::unique_ptr<Kernel>> gathered;
    for (std::size_t at = 0; at < kernels.size();) {
        const std::size_t length = region_length(records, sections, at);
        if (!records[at].condition.present()) {
            gathered.push_back(std::move(kernels[at]));
        } else {
            std::vector<std::unique_ptr<Kernel>> inner;
            for (std::size_t i = 0; i < length; ++i) inner.push_back(std::move(kernels[at + i]));
            gathered.push_back(std::make_unique<Region>(records[at].condition, std::move(inner)));
        }
        at += length;
    }
    kernels = std::move(gathered);
}

/// For backends that are done with a kernel when it returns.
class HostTimeline final : public Timeline {
public:
    explicit HostTimeline(std::size_t marks) : times_(marks) {}
    void mark(std::size_t index) noexcept override { times_[index] = std::chrono::steady_clock::now(); }
    base::Result<double> milliseconds(std::size_t from, std::size_t to) override {
        return std::chrono::duration<double, std::milli>(times_[to] - times_[from]).count();
    }

private:
    std::vector<std::chrono::steady_clock::time_point> times_;
};

}  // namespace

base::Result<std::unique_ptr<Memory>> HostBackend::allocate(std::size_t bytes) {
    void* data = ::operator new(bytes == 0 ? 1 : bytes, HostMemory::kAlignment, std::nothrow);
    if (data == nullptr)
        return base::Error{fmt::format("no memory for {} bytes; a smaller batch or model needs less", bytes), "", 1};
    std::memset(data, 0, bytes);
    return std::unique_ptr<Memory>(std::make_unique<HostMemory>(static_cast<std::byte*>(data), bytes));
}

base::Result<std::unique_ptr<Uploader>> HostBackend::make_uploader() {
    class Copying final : public Uploader {
        base::Status copy(std::byte* device, const std::byte* host, std::size_t bytes) override {
            std::memcpy(device, host, bytes);
            return base::ok();
        }
    };
    return std::unique_ptr<Uploader>(std::make_unique<Copying>());
}

void HostBackend::upload(std::byte* device, const void* host, std::size_t bytes) {
    if (bytes > 0) std::memcpy(device, host, bytes);
}
void HostBackend::download(void* host, const std::byte* device, std::size_t bytes) {
    if (bytes > 0) std::memcpy(host, device, bytes);
}
void HostBackend::clear(std::byte* device, std::size_t bytes) {
    if (bytes > 0) std::memset(device, 0, bytes);
}

base::Result<std::vector<std::unique_ptr<Kernel>>> HostBackend::prepare(std::span<const Bound> records,
                                                                        std::span<const Section> sections,
                                                                        std::span<std::byte> /*scratch*/) {
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (std::size_t i = 0; i < records.size(); ++i) {
        MILLRACE_LET(kernel, make(records[i]));
        kernel->first = i;
        kernels.push_back(std::move(kernel));
    }
    MILLRACE_TRY(finish());
    gather_regions(records, sections, kernels);
    return kernels;
}

base::Result<std::unique_ptr<Timeline>> Backend::make_timeline(std::size_t marks) {
    return std::unique_ptr<Timeline>(std::make_unique<HostTimeline>(marks));
}

}  // namespace millrace::ops
