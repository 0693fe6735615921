#include "ops/region.h"

#include <algorithm>

namespace millrace::ops {
namespace {

class Region final : public Kernel {
public:
    Region(const tensor::Operand& flags, std::vector<std::unique_ptr<Kernel>> inner) : flags_(flags), inner_(std::move(inner)) {
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

/// Number of records from `first` on that name the same condition; 1 where none is named.
std::size_t region_length(std::span<const Bound> records, std::size_t first) {
    const tensor::Operand& flags = records[first].condition;
    std::size_t length = 1;
    while (flags.present() && first + length < records.size() && records[first + length].condition.data == flags.data) ++length;
    return length;
}

}  // namespace

void gather_regions(std::span<const Bound> records, std::vector<std::unique_ptr<Kernel>>& kernels) {
    std::vector<std::unique_ptr<Kernel>> gathered;
    for (std::size_t at = 0; at < kernels.size();) {
        const std::size_t length = region_length(records, at);
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

}  // namespace millrace::ops
