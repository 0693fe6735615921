#include "data/recordings/recording_set.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "data/batch_source.h"
#include "ops/cpu/thread_pool.h"
#include "tape/record.h"
#include "tensor/dtype.h"

namespace millrace::data {
namespace {

constexpr std::uint64_t kReadAtOnce = 4 << 20;

}  // namespace

FeatureFile::FeatureFile(std::shared_ptr<const io::Hdf5Dataset> set, Path path, std::uint64_t values)
    : set_(std::move(set)), path_(std::move(path)), values_(values) {}

std::uint64_t FeatureFile::together() const {
    const std::vector<std::uint64_t>& chunk = set_->description().chunk;
    return chunk.empty() ? 1 : std::clamp<std::uint64_t>(chunk[0], 1, std::max<std::uint64_t>(1, count()));
}

Status FeatureFile::read(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const {
    if (*set_->description().type == io::ElementType::kF16) {
        MILLRACE_TRY(set_->read_rows(first, count, std::as_writable_bytes(out)));
    } else {
        thread_local std::vector<float> wide;  // a reading thread needs it for every block
        wide.resize(out.size());
        MILLRACE_TRY(set_->read_rows(first, count, std::as_writable_bytes(std::span(wide))));
        std::ranges::transform(wide, out.begin(), tensor::to_f16);
    }
    const auto infinite = std::ranges::find_if(out, [](std::uint16_t bits) { return (bits & 0x7c00u) == 0x7c00u; });
    if (infinite != out.end())
        return Error{fmt::format("segments_mel: a feature of recording {} is not finite, or too large for a half",
                                 first + static_cast<std::uint64_t>(infinite - out.begin()) / values_),
                     path_.string()};
    return base::ok();
}

Result<std::vector<std::uint16_t>> FeatureFile::read_all() const {
    const std::uint64_t needed = count() * values_ * sizeof(std::uint16_t);
    if (const auto pages = sysconf(_SC_PHYS_PAGES); pages > 0 && needed > static_cast<std::uint64_t>(pages) * 4096)
        return Error{fmt::format("{} needs {} bytes, more than this machine's memory; data.mode = \"stream\" needs less",
                                 set_->description().text(), needed),
                     path_.string()};
    std::vector<std::uint16_t> features(count() * values_);
    const std::uint64_t block = std::max<std::uint64_t>(1, kReadAtOnce / std::max<std::uint64_t>(set_->row_bytes(), 1));
    std::mutex mutex;
    Status status = base::ok();
    ops::cpu::ThreadPool pool(set_->direct() ? 0 : 1);
    pool.for_each(static_cast<int>((count() + block - 1) / block), [&](int task, int) {
        const std::uint64_t first = static_cast<std::uint64_t>(task) * block, rows = std::min(block, count() - first);
        Status done = read(first, rows, std::span(features).subspan(first * values_, rows * values_));
        const std::lock_guard lock(mutex);
        if (status.ok()) status = std::move(done);
    });
    MILLRACE_TRY(status);
    return features;
}

ColumnStatistics::ColumnStatistics(std::int32_t width)
    : sum_(static_cast<std::size_t>(width)), squares_(static_cast<std::size_t>(width)) {}

void ColumnStatistics::add(std::span<const std::uint16_t> rows) {
    const std::size_t columns = sum_.size();
    if (offset_.empty()) {  // the first row: squares of values around it keep their digits
        offset_.resize(columns);
        for (std::size_t c = 0; c < columns && c < rows.size(); ++c) offset_[c] = static_cast<double>(tensor::from_f16(rows[c]));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t c = i % columns;
        const double value = static_cast<double>(tensor::from_f16(rows[i])) - offset_[c];
        sum_[c] += value;
        squares_[c] += value * value;
    }
    const std::size_t count = rows.size() / columns;
    rows_ += static_cast<double>(count);
}

Scaling ColumnStatistics::scaling() const {
    Scaling scaling;
    const double n = std::max(1.0, rows_);
    for (std::size_t c = 0; c < sum_.size(); ++c) {
        const double mean = sum_[c] / n, deviation = std::sqrt(std::max(0.0, squares_[c] / n - mean * mean));
        scaling.mean.push_back(static_cast<float>(mean + (offset_.empty() ? 0 : offset_[c])));
        scaling.deviation.push_back(deviation > 1e-6 ? static_cast<float>(deviation) : 1.0f);
    }
    return scaling;
}

Scaling measure(const Recordings& recordings, std::int32_t width) {
    ColumnStatistics statistics(width);
    statistics.add(recordings.features);
    return statistics.scaling();
}

Fields fields_of(const RecordingSet& set) {
    Fields fields{{"features", Field::Kind::real, set.width},
                  {"label", Field::Kind::integer, 1, static_cast<std::int32_t>(set.classes.names.size())}};
    fields[0].scaling = set.scaling;
    fields[1].names = set.classes.names;
    fields[1].classes = std::make_shared<const Classes>(set.classes);
    return fields;
}

void ScalingViews::declare(tape::Store& store, std::int32_t width) {
    const tensor::DType stat = tape::stat_of(store.options().precision);
    mean = store.add_data("means of features", stat, 1, width);
    inverse = store.add_data("inverse deviations of features", stat, 1, width);
}

void ScalingViews::upload(tape::Store& store, const Scaling& scaling) const {
    std::vector<double> means, inverses;
    for (std::size_t c = 0; c < scaling.mean.size(); ++c) {
        means.push_back(static_cast<double>(scaling.mean[c]));
        inverses.push_back(1 / static_cast<double>(scaling.deviation[c]));
    }
    if (mean.dtype == tensor::DType::f64) {
        store.write(mean, means);
        store.write(inverse, inverses);
    } else {
        store.write(mean, std::vector<float>(means.begin(), means.end()));
        store.write(inverse, std::vector<float>(inverses.begin(), inverses.end()));
    }
}

std::vector<tensor::View> append_gather(tape::Builder& builder, const ops::GatherFeaturesParams& params,
                                        const FeatureTables& from, std::int32_t rows, std::span<const Wanted> fields) {
    const Gathered places =
        places_of(builder, {{"features", Field::Kind::real, from.mean.cols}, {"label", Field::Kind::integer, 1}}, rows, fields);
    builder.append(tape::record_of(&ops::gather_features::kDef, params, "data",
                                   {from.features, from.labels, from.mean, from.inverse, from.order, builder.store().state(),
                                    places.fields[0], places.fields[1]}));
    return places.wanted;
}

void make_binary(RecordingSet& set) {
    const std::string positive = set.classes.names[static_cast<std::size_t>(set.classes.positive)];
    for (Recordings& part : set.parts)
        for (std::int32_t& label : part.labels) label = label == set.classes.positive ? 1 : 0;
    set.classes.names = {"NO" + positive, positive};
    set.classes.positive = 1;
}

void count_classes(RecordingSet& set) {
    set.classes.counts.assign(set.classes.names.size(), 0);
    for (const std::int32_t label : set.part(Part::train).labels)
        set.classes.counts[static_cast<std::size_t>(label)] += set.windows;
}

}  // namespace millrace::data
