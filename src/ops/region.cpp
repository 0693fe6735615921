#include "ops/region.h"

#include <algorithm>

#include "models/energy_flow/ops/flow_rule.h"

namespace millrace::ops {
namespace {

class Region final : public Kernel {
public:
    Region(const tensor::Operand& counters, std::vector<std::unique_ptr<Kernel>> inner)
        : counters_(counters), inner_(std::move(inner)) {
        first = inner_.front()->first;
        count = inner_.size();
    }
    void run() noexcept override {
        bool alive = false;
        for (int m = 0; m < counters_.k; ++m) alive = alive || any_alive(counters_.at<std::int32_t>(m));
        for (std::size_t i = 0; alive && i < inner_.size(); ++i) inner_[i]->run();
    }

private:
    tensor::Operand counters_;
    std::vector<std::unique_ptr<Kernel>> inner_;
};

}  // namespace

std::size_t region_length(std::span<const Bound> records, std::size_t first) {
    const tensor::Operand& counters = records[first][kWhile];
    std::size_t length = 1;
    while (counters.present() && first + length < records.size() && records[first + length][kWhile].data == counters.data)
        ++length;
    return length;
}

void gather_regions(std::span<const Bound> records, std::vector<std::unique_ptr<Kernel>>& kernels) {
    std::vector<std::unique_ptr<Kernel>> gathered;
    for (std::size_t at = 0; at < kernels.size();) {
        const std::size_t length = region_length(records, at);
        if (!records[at][kWhile].present()) {
            gathered.push_back(std::move(kernels[at]));
        } else {
            std::vector<std::unique_ptr<Kernel>> inner;
            for (std::size_t i = 0; i < length; ++i) inner.push_back(std::move(kernels[at + i]));
            gathered.push_back(std::make_unique<Region>(records[at][kWhile], std::move(inner)));
        }
        at += length;
    }
    kernels = std::move(gathered);
}

}  // namespace millrace::ops
