#include "data/stream/streamed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/processors.h"
#include "base/units.h"

namespace millrace::data {
namespace {

constexpr std::chrono::microseconds kPoll{100};  // for steps to end, where a window waits for them
constexpr std::chrono::microseconds kIdle{100'000};

constexpr std::uint64_t kBlockBytes = 2 << 20;
constexpr std::uint64_t kLeastBlocks = 16;                        // of a window, where blocks can be made smaller
constexpr std::uint64_t kMostWindowRows = 1u << 29;               // of a window: those of two can be counted
constexpr std::uint32_t kCheckedEpochs = 1000;                    // more take too long to begin with
constexpr std::size_t kMostGroups = 64;                           // more take too much memory in large sets
constexpr std::size_t kWord = sizeof(std::int32_t), kPixels = 8;  // that a GPU takes at a time

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

StreamedRows::StreamedRows(WindowPlan plan, std::size_t row_bytes, int threads, bool training, ReadBlock read)
    : options_{.plan = plan, .row_bytes = row_bytes, .threads = threads, .read = std::move(read)}, training_(training) {
    if (!training) options_.end = plan.windows();
}

void StreamedRows::declare(tape::Store& store, std::string name) {
    table_ = store.add_data(std::move(name), tensor::DType::u8, static_cast<std::int32_t>(2 * plan().window_rows()),
                            static_cast<std::int32_t>(options_.row_bytes));
}

base::Status StreamedRows::start(tape::Store& store) {
    MILLRACE_SET(feed_, WindowFeed::create(store.backend(), store.address(table_.buffer), options_));
    return base::ok();
}

base::Status StreamedRows::await(const RowsAhead& rows, const StepsDone& done) {
    const std::uint64_t pass = training_ ? std::uint64_t{rows.epoch} * plan().windows() : 0;
    const std::uint64_t first = pass + static_cast<std::uint64_t>(rows.first) / plan().window_rows();
    const std::uint64_t last = pass + static_cast<std::uint64_t>(rows.first + rows.count - 1) / plan().window_rows();
    // Both windows of a short pass stay where they are.
    const bool stays = !training_ && begun_ && plan().windows() <= 2;
    if (!stays && (!begun_ || first < first_ || first > last_ + 1)) {
        releases_.clear();
        feed_->begin(first);
        begun_ = true;
    } else if (first > first_) {
        releases_.push_back({rows.step, first});
    }
    first_ = first;
    last_ = last;
    for (std::uint64_t window = first; window <= last;) {
        MILLRACE_TRY(release(done));
        if (rows.prefetch) break;
        MILLRACE_LET(there, feed_->wait_for(window, releases_.empty() ? kIdle : kPoll));
        if (there) window += 1;
    }
    return base::ok();
}

base::Status StreamedRows::release(const StepsDone& done) {
    if (releases_.empty()) return base::ok();
    MILLRACE_LET(finished, done());
    for (; !releases_.empty() && releases_.front().step <= finished; releases_.pop_front())
        feed_->release_below(releases_.front().window);
    return base::ok();
}

void add_stream_keys(base::Schema& schema) {
    schema.bytes("data.window", "256MiB", "stream: device memory for training rows; validation and test get a quarter each")
        .between(1024, 1e15);
    schema.integer("data.threads", 8, "stream: threads that read, at most one per core").between(1, 1024);
}

StreamOptions read_stream_options(const base::Recipe& recipe, bool training) {
    return {recipe.bytes("data.window"),
            static_cast<int>(std::min<std::int64_t>(recipe.integer("data.threads"), base::usable_processors())),
            static_cast<std::uint64_t>(recipe.integer("seed")), static_cast<std::uint32_t>(recipe.integer("train.epochs")),
            training};
}

StreamedSource::StreamedSource(StreamedSet set, StreamOptions options)
    : set_(std::move(set)),
      options_(options),
      input_bytes_(static_cast<std::size_t>(set_.fields[0].width) * tensor::size_of(set_.input)),
      answer_offset_(round_up(input_bytes_, kWord)),
      row_bytes_(round_up(answer_offset_ + kWord, set_.input == tensor::DType::u8 ? kPixels : kWord)),
      groups_(std::min(static_cast<std::size_t>(set_.fields[1].limit), kMostGroups)) {}

base::Result<std::unique_ptr<StreamedSource>> StreamedSource::create(StreamedSet set, StreamOptions options) {
    std::unique_ptr<StreamedSource> made(new StreamedSource(std::move(set), options));
    if (made->samples(Part::train) == 0) return base::Error{fmt::format("the training part has no {}", made->set_.unit)};
    for (const Part part : kAllParts)
        if (made->samples(part) > 0 && (part != Part::train || options.training)) MILLRACE_TRY(made->add_part(part));
    if (options.training && made->groups_ > 0) MILLRACE_TRY(made->check_mix());
    return made;
}

base::Status StreamedSource::add_part(Part part) {
    const StreamedSet::Rows& from = set_.parts[index_of(part)];
    const std::uint64_t share = part == Part::train ? 2 : 8, half = options_.window_bytes / share,
                        chunk = from.together * row_bytes_;
    const std::uint64_t block = std::max<std::uint64_t>(1, std::min(kBlockBytes, half / kLeastBlocks) / chunk) * chunk;
    if (block > half)
        return base::Error{fmt::format(
            "data.window = {} leaves {} for a window of the {} part, and {} of its {} are read at a time, which take {}; a "
            "data.window of {} would be right",
            base::exact_bytes(options_.window_bytes), base::print_bytes(half), name_of(part), from.together, set_.unit,
            base::print_bytes(chunk), base::print_bytes(share * chunk))};
    WindowPlan plan;
    plan.seed = options_.seed;
    plan.rows = static_cast<std::uint32_t>(from.count);
    plan.block_rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(block / row_bytes_, plan.rows));
    plan.shuffle = part == Part::train;
    plan.window_blocks =
        static_cast<std::uint32_t>(std::min<std::uint64_t>({half / block, plan.blocks(), kMostWindowRows / plan.block_rows}));
    if (plan.shuffle) plan.divide(plan.window_blocks);  // an evaluation is to take as many rows at once as it may
    parts_[index_of(part)] =
        std::make_unique<StreamedRows>(plan, row_bytes_, options_.threads, part == Part::train,
                                       [this, &from, rows = plan.block_rows](std::uint32_t number, std::span<std::byte> out) {
                                           return read_block(from, number * rows, out);
                                       });
    return base::ok();
}

/// Neighbours may have one label, so a block may be of one class, and where classes follow each other a window, too.
base::Status StreamedSource::check_mix() {
    const WindowPlan& order = *plan(Part::train);
    block_counts_.assign(order.blocks() * groups_, 0);
    for (std::uint32_t row = 0; row < order.rows; ++row)
        block_counts_[row / order.block_rows * groups_ + set_.parts[index_of(Part::train)].answer(row) % groups_] += 1;
    for (std::uint32_t epoch = 0; epoch < std::min(options_.epochs, kCheckedEpochs); ++epoch) {
        const WindowMix mix = mix_of(order, epoch, block_counts_, groups_);
        if (mix.of_one_class > 0)
            return base::Error{fmt::format(
                "in epoch {} {} of the {} windows of data.window = {} would hold one class alone; a larger data.window would be "
                "right, or, of recordings, a copy that is mixed (`millrace data pack FOLDER --out NEW`)",
                epoch + 1, mix.of_one_class, order.windows(), base::exact_bytes(options_.window_bytes))};
        deviation_ = std::max(deviation_, mix.deviation);
    }
    return base::ok();
}

const WindowPlan* StreamedSource::plan(Part part) const {
    const auto& streamed = parts_[index_of(part)];
    return streamed ? &streamed->plan() : nullptr;
}

base::Status StreamedSource::declare(tape::Store& store) {
    for (const Part part : kAllParts)
        if (const auto& streamed = parts_[index_of(part)]) streamed->declare(store, fmt::format("{} windows", name_of(part)));
    if (set_.declare) set_.declare(store);
    return base::ok();
}

base::Status StreamedSource::upload(tape::Store& store) {
    if (set_.upload) set_.upload(store);
    for (const auto& streamed : parts_)
        if (streamed) MILLRACE_TRY(streamed->start(store));
    return store.backend().check();
}

base::Status StreamedSource::read_block(const StreamedSet::Rows& from, std::uint32_t first, std::span<std::byte> rows) const {
    const std::size_t count = rows.size() / row_bytes_;
    // Inputs arrive at the end of the block and move to their rows from there: forwards, so none is overwritten before.
    const std::span<std::byte> dense = rows.last(count * input_bytes_);
    MILLRACE_TRY(from.inputs(first, dense));
    for (std::size_t i = 0; i < count; ++i) {
        std::byte* row = rows.data() + i * row_bytes_;
        std::memmove(row, dense.data() + i * input_bytes_, input_bytes_);
        const std::uint32_t answer = from.answer(first + static_cast<std::uint32_t>(i));
        std::memcpy(row + answer_offset_, &answer, kWord);
    }
    return base::ok();
}

base::Status StreamedSource::await_rows(const RowsAhead& rows, const StepsDone& done) {
    const base::Status there = parts_[index_of(rows.part)]->await(rows, done);
    if (there.ok()) return base::ok();
    return base::Error{fmt::format("cannot read the {} data of {}", name_of(rows.part), set_.name), {}, there.error().exit_status}
        .because(there.error());
}

std::int64_t StreamedSource::most_rows(Part part) const {
    const auto& streamed = parts_[index_of(part)];
    return streamed ? streamed->most_rows() : BatchSource::most_rows(part);
}

std::optional<LoaderCounts> StreamedSource::loader_counts(std::uint32_t epoch) const {
    const auto& streamed = parts_[index_of(Part::train)];
    if (!streamed) return std::nullopt;
    LoaderCounts counts{streamed->bytes()};
    if (groups_ > 0) counts.mix_deviation = mix_of(streamed->plan(), epoch, block_counts_, groups_).deviation;
    return counts;
}

std::string StreamedSource::loading() const {
    const WindowPlan* order = plan(Part::train);
    if (order == nullptr) return {};
    std::string text =
        fmt::format("{} {} of {} {} in blocks of {}, {} {}", order->windows(), order->windows() == 1 ? "window" : "windows",
                    base::print_count(order->window_rows()), set_.unit, base::print_count(order->block_rows), options_.threads,
                    options_.threads == 1 ? "thread" : "threads");
    if (groups_ > 0)
        text += fmt::format("; a class's share of a window differs from that of the set by at most {}",
                            base::print_percent(deviation_));
    return text;
}

std::vector<tensor::View> StreamedSource::gather(tape::Builder& builder, Part part, std::int32_t rows,
                                                 std::span<const Wanted> fields) {
    const StreamedRows& streamed = *parts_[index_of(part)];
    const auto column = [&](tensor::DType dtype, std::int32_t cols, std::size_t offset) {
        tensor::View view = streamed.table();
        const auto size = static_cast<std::int64_t>(tensor::size_of(dtype));
        view.dtype = dtype, view.cols = cols;
        view.stride_row /= size, view.offset = static_cast<std::int64_t>(offset) / size;
        return view;
    };
    const StreamedTables from{column(set_.input, set_.fields[0].width, 0), column(set_.answer, 1, answer_offset_),
                              streamed.plan().window_rows()};
    return set_.gather(builder, part, from, rows, fields);
}

}  // namespace millrace::data
