#include "data/recordings/streamed_recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "data/recordings/feature_file.h"
#include "ops/gather/gather.h"
#include "tape/record.h"

namespace millrace::data {
namespace {

constexpr std::uint64_t kBlockBytes = 2 << 20;
constexpr std::uint64_t kLeastBlocks = 16;           // of a window, where blocks can be made smaller
constexpr std::uint64_t kMostWindowRows = 1u << 29;  // of a window: those of two can be counted
constexpr std::uint32_t kCheckedEpochs = 1000;       // more take too long to begin with
constexpr std::size_t kWord = sizeof(std::int32_t);

}  // namespace

StreamedRecordings::StreamedRecordings(std::shared_ptr<const RecordingSet> set, StreamOptions options)
    : set_(std::move(set)), options_(options), fields_(fields_of(*set_)) {
    label_offset_ = (static_cast<std::size_t>(set_->width) * sizeof(std::uint16_t) + kWord - 1) / kWord * kWord;
    row_bytes_ = label_offset_ + kWord;
}

base::Result<std::unique_ptr<StreamedRecordings>> StreamedRecordings::create(std::shared_ptr<const RecordingSet> set,
                                                                             StreamOptions options) {
    std::unique_ptr<StreamedRecordings> made(new StreamedRecordings(std::move(set), options));
    if (made->samples(Part::train) == 0) return base::Error{"the training part has no recordings"};
    for (const Part part : kAllParts)
        if (made->samples(part) > 0 && (part != Part::train || options.training)) MILLRACE_TRY(made->add_part(part));
    if (options.training) MILLRACE_TRY(made->check_mix());
    return made;
}

base::Status StreamedRecordings::add_part(Part part) {
    const FeatureFile& file = *set_->file(part);
    const std::uint64_t half = options_.window_bytes / (part == Part::train ? 2 : 8);
    const std::uint64_t recording = static_cast<std::uint64_t>(set_->windows) * row_bytes_, chunk = file.together() * recording;
    const std::uint64_t block = std::max<std::uint64_t>(1, std::min(kBlockBytes, half / kLeastBlocks) / chunk) * chunk;
    if (block > half)
        return base::Error{fmt::format(
            "data.window = {} leaves {} for a window of the {} part, and its recordings are read {} at a time, which takes {}; a "
            "data.window of {} would be right",
            base::exact_bytes(options_.window_bytes), base::print_bytes(half), name_of(part), file.together(),
            base::print_bytes(chunk), base::print_bytes(options_.window_bytes / half * chunk))};
    WindowPlan plan;
    plan.seed = options_.seed;
    plan.rows = static_cast<std::uint32_t>(samples(part));
    plan.block_rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(block / row_bytes_, plan.rows));
    plan.shuffle = part == Part::train;
    plan.divide(
        static_cast<std::uint32_t>(std::min<std::uint64_t>({half / block, plan.blocks(), kMostWindowRows / plan.block_rows})));
    parts_[index_of(part)] =
        std::make_unique<StreamedRows>(plan, row_bytes_, options_.threads, part == Part::train,
                                       [this, part, rows = plan.block_rows](std::uint32_t number, std::span<std::byte> out) {
                                           return read_block(part, number * rows, out);
                                       });
    return base::ok();
}

/// All windows of a recording have one label, so a block may be of one class, and where classes follow each other a window, too.
base::Status StreamedRecordings::check_mix() {
    const WindowPlan& order = *plan(Part::train);
    const std::size_t classes = set_->classes.names.size();
    const auto windows = static_cast<std::uint32_t>(set_->windows);
    block_counts_.assign(order.blocks() * classes, 0);
    const std::vector<std::int32_t>& labels = set_->part(Part::train).labels;
    for (std::uint32_t r = 0; r < labels.size(); ++r)
        block_counts_[r * windows / order.block_rows * classes + static_cast<std::size_t>(labels[r])] += windows;
    for (std::uint32_t epoch = 0; epoch < std::min(options_.epochs, kCheckedEpochs); ++epoch) {
        const WindowMix mix = mix_of(order, epoch, block_counts_, classes);
        if (mix.of_one_class > 0)
            return base::Error{
                fmt::format("in epoch {} {} of the {} windows of data.window = {} would hold one class alone; a larger "
                            "data.window, or a copy "
                            "of the set whose recordings are mixed (`millrace data pack FOLDER --out NEW`) would be right",
                            epoch + 1, mix.of_one_class, order.windows(), base::exact_bytes(options_.window_bytes))};
        deviation_ = std::max(deviation_, mix.deviation);
    }
    return base::ok();
}

const WindowPlan* StreamedRecordings::plan(Part part) const {
    const auto& streamed = parts_[index_of(part)];
    return streamed ? &streamed->plan() : nullptr;
}

base::Status StreamedRecordings::declare(tape::Store& store) {
    for (const Part part : kAllParts)
        if (const auto& streamed = parts_[index_of(part)]) streamed->declare(store, fmt::format("{} windows", name_of(part)));
    scaling_.declare(store, set_->width);
    return base::ok();
}

base::Status StreamedRecordings::upload(tape::Store& store) {
    scaling_.upload(store, *set_->scaling);
    for (const auto& streamed : parts_)
        if (streamed) MILLRACE_TRY(streamed->start(store));
    return store.backend().check();
}

base::Status StreamedRecordings::read_block(Part part, std::uint32_t first, std::span<std::byte> rows) const {
    const FeatureFile& file = *set_->file(part);
    const auto width = static_cast<std::size_t>(set_->width);
    const auto windows = static_cast<std::uint32_t>(set_->windows);
    const std::size_t count = rows.size() / row_bytes_;
    // Features arrive at the end of the block and move to their rows from there: forwards, so none is overwritten before.
    const std::span<std::byte> dense = rows.last(count * width * sizeof(std::uint16_t));
    const std::span features(reinterpret_cast<std::uint16_t*>(dense.data()), count * width);
    MILLRACE_TRY(file.read(first / windows, count / windows, features));
    const std::vector<std::int32_t>& labels = set_->part(part).labels;
    for (std::size_t i = 0; i < count; ++i) {
        std::byte* row = rows.data() + i * row_bytes_;
        std::memmove(row, features.data() + i * width, width * sizeof(std::uint16_t));
        std::memcpy(row + label_offset_, &labels[(first + i) / windows], sizeof(std::int32_t));
    }
    return base::ok();
}

base::Status StreamedRecordings::await_rows(const RowsAhead& rows, const StepsDone& done) {
    const base::Status there = parts_[index_of(rows.part)]->await(rows, done);
    if (there.ok()) return base::ok();
    return base::Error{
        fmt::format("cannot read the {} data of {}", name_of(rows.part), set_->name), {}, there.error().exit_status}
        .because(there.error());
}

std::int64_t StreamedRecordings::most_rows(Part part) const {
    const auto& streamed = parts_[index_of(part)];
    return streamed ? streamed->most_rows() : BatchSource::most_rows(part);
}

std::optional<LoaderCounts> StreamedRecordings::loader_counts(std::uint32_t epoch) const {
    const auto& streamed = parts_[index_of(Part::train)];
    if (!streamed) return std::nullopt;
    return LoaderCounts{streamed->bytes(), mix_of(streamed->plan(), epoch, block_counts_, set_->classes.names.size()).deviation};
}

std::string StreamedRecordings::loading() const {
    const WindowPlan* order = plan(Part::train);
    if (order == nullptr) return {};
    return fmt::format(
        "{} {} of {} segments in blocks of {}, {} {}; a class's share of a window differs from that of the set by at most {}",
        order->windows(), order->windows() == 1 ? "window" : "windows", base::print_count(order->window_rows()),
        base::print_count(order->block_rows), options_.threads, options_.threads == 1 ? "thread" : "threads",
        base::print_percent(deviation_));
}

std::vector<tensor::View> StreamedRecordings::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                     std::span<const Wanted> fields) {
    const StreamedRows& from = *parts_[index_of(part)];
    ops::GatherFeaturesParams params;
    params.samples = static_cast<std::uint32_t>(samples(part));
    params.op_number = builder.next_op_number();
    params.training = params.shuffle = builder.training();
    params.window = from.plan().window_rows();
    if (builder.training()) params.mask = static_cast<std::uint32_t>(options_.mask);
    tensor::View features = from.table(), labels = from.table();
    features.dtype = tensor::DType::f16;
    features.cols = set_->width;
    features.stride_row = static_cast<std::int64_t>(row_bytes_ / sizeof(std::uint16_t));
    labels.dtype = tensor::DType::i32;
    labels.cols = 1;
    labels.stride_row = static_cast<std::int64_t>(row_bytes_ / kWord);
    labels.offset = static_cast<std::int64_t>(label_offset_ / kWord);
    return append_gather(builder, params, {features, labels, scaling_.mean, scaling_.inverse, {}}, rows, fields);
}

}  // namespace millrace::data
