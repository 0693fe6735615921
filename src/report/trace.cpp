#include "report/trace.h"

#include <algorithm>
#include <cmath>

namespace millrace::report {

void Trace::Column::merge(const Column& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
    sum += other.sum;
    count += other.count;
}

void Trace::add(std::uint64_t tick, const std::optional<double>& value) {
    if (!value || !std::isfinite(*value)) return;
    while ((tick >> shift_) >= kColumns) halve();
    const auto at = static_cast<std::size_t>(tick >> shift_);
    if (columns_.size() <= at) columns_.resize(at + 1);
    columns_[at].merge({*value, *value, *value, 1});
    ++count_;
}

std::vector<std::vector<std::size_t>> Trace::stretches(std::size_t reach) const {
    std::vector<std::vector<std::size_t>> found;
    for (std::size_t at = 0; at < columns_.size(); ++at) {
        if (columns_[at].count == 0) continue;
        if (found.empty() || at - found.back().back() > reach) found.emplace_back();
        found.back().push_back(at);
    }
    return found;
}

double Trace::high() const {
    double highest = -std::numeric_limits<double>::infinity();
    for (const Column& column : columns_) highest = std::max(highest, column.high);
    return highest;
}

double Trace::mean() const {
    double sum = 0;
    for (const Column& column : columns_) sum += column.sum;
    return sum / static_cast<double>(count_);
}

void Trace::halve() {
    ++shift_;
    for (std::size_t at = 0; at < columns_.size(); ++at) {
        const Column from = columns_[at];
        if (at % 2 == 0) columns_[at / 2] = {};
        columns_[at / 2].merge(from);
    }
    columns_.resize((columns_.size() + 1) / 2);
}

}  // namespace millrace::report
