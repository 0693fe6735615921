#include "tape/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/optimizer/optimizer.h"
#include "ops/uses.h"
#include "tape/initial.h"

namespace millrace::tape {
namespace {

constexpr std::int64_t kBufferAlign = 256;
constexpr std::int64_t kTensorAlign = 64;  // elements: 128 bytes in bf16, so that rows of weights can be read 16 bytes at a time

template <class Each, class Count>
std::int64_t sum_of(const std::vector<Each>& all, const Count& count) {
    std::int64_t sum = 0;
    for (const Each& each : all) sum += count(each);
    return sum;
}

}  // namespace

using tensor::BufferId;
using tensor::DType;
using tensor::View;

Store::Store(ops::Backend& backend, StoreOptions options) : backend_(backend), options_(options), buffers_(kFixedCount) {
    MILLRACE_ASSERT(options_.members >= 1, "a store needs at least one member");
    describe_buffers();
}

void Store::describe_buffers() {
    const std::int64_t k = options_.members, trained = k * trainable_width_;
    const DType stat = stat_of(options_.precision);
    const auto set = [&](BufferId id, const char* name, Role role, DType dtype, std::int64_t elements) {
        buffers_[static_cast<std::size_t>(id)] = {name, role, dtype, elements};
    };
    const auto bytes = [](std::size_t count, std::size_t each) { return static_cast<std::int64_t>(count * each); };
    set(kParams, "parameters", Role::parameter, stat, trained);
    set(kGrads, "gradients", Role::gradient, stat, trained);
    set(kFirst, "first moment", Role::optimizer, stat, options_.first_moment ? trained : 0);
    set(kSecond, "second moment", Role::optimizer, stat, options_.second_moment ? trained : 0);
    set(kCopy16, "16-bit weights", Role::parameter, real_of(options_.precision), has_copies(options_.precision) ? trained : 0);
    set(kFixed, "running statistics", Role::running, stat, k * fixed_width_);
    set(kState, "member state", Role::state, DType::u8, k * bytes(1, sizeof(ops::MemberState)));
    set(kGroups, "parameter groups", Role::state, DType::u8, k * bytes(groups_.size(), sizeof(ops::GroupState)));
    set(kSegments, "segments of groups", Role::state, DType::i32, bytes(segments_.size(), 2));
    set(kScratch, "norm scratch", Role::scratch, stat, k * ops::kNormBlocks);
    set(kRing, "metrics ring", Role::metric, DType::u8, k * bytes(options_.ring_capacity, sizeof(ops::MetricsRow)));
    set(kCounter, "metrics counter", Role::metric, DType::u8, 8);
}

ParameterId Store::add_matrix(std::vector<std::string> names, std::int32_t rows, std::int32_t cols, Init init,
                              const ParameterGroupNames& groups, std::vector<std::int32_t> axes) {
    MILLRACE_ASSERT(!sealed_, "parameters are declared before allocate() or seal()");
    Parameter p;
    p.matrices = static_cast<std::int32_t>(names.size());
    p.names = std::move(names);
    p.rows = rows;
    p.cols = cols;
    const std::vector<std::string> usual{std::string(kWeights)}, &given = groups.names.empty() ? usual : groups.names;
    MILLRACE_ASSERT(given.size() == 1 || (given.size() == p.names.size() && std::int64_t{rows} * cols % 4 == 0), p.names.front());
    for (std::size_t i = 0; i < p.names.size(); ++i) p.group_ids.push_back(group_named(given[given.size() == 1 ? 0 : i]));
    const auto fixed = [&](std::int32_t id) { return groups_[static_cast<std::size_t>(id)].fixed; };
    p.fixed = fixed(p.group_ids.front());
    MILLRACE_ASSERT(std::ranges::all_of(p.group_ids, [&](std::int32_t id) { return fixed(id) == p.fixed; }), p.names.front());
    p.init = std::move(init);
    p.axes = std::move(axes);
    std::int64_t& width = p.fixed ? fixed_width_ : trainable_width_;
    p.offset = width;
    width = align(width + p.count(), kTensorAlign);
    parameters_.push_back(std::move(p));
    return static_cast<ParameterId>(parameters_.size()) - 1;
}

ParameterId Store::add_table(std::vector<std::string> names, std::int32_t rows, std::int32_t cols, Init init) {
    const ParameterId id = add_matrix(std::move(names), rows, cols, std::move(init));
    parameters_.back().table = true;
    return id;
}

ParameterId Store::add_vector(std::vector<std::string> names, std::int32_t cols, Init init, ParameterGroupNames groups) {
    if (groups.names.empty()) groups = options_.decay_vectors ? kWeights : kNoDecay;
    const ParameterId id = add_matrix(std::move(names), 1, cols, std::move(init), groups);
    parameters_.back().vector = true;
    return id;
}

View Store::add_data(std::string name, DType dtype, std::int32_t rows, std::int32_t cols) {
    MILLRACE_ASSERT(!sealed_, "data buffers are declared before allocate() or seal()");
    buffers_.push_back({std::move(name), Role::data, dtype, std::int64_t{rows} * cols});
    View v = contiguous_view(static_cast<BufferId>(buffers_.size()) - 1, dtype, 1, 1, rows, cols);
    v.stride_k = v.stride_g = 0;  // one for all
    return v;
}

base::Status Store::seal() {
    if (sealed_) return base::ok();
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (trainable_width_ > kMost)
        return base::Error{fmt::format("the model has {} parameters; one member holds at most {}", trainable_width_, kMost)};
    set_segments();
    describe_buffers();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        View first;
        first.buffer = static_cast<BufferId>(i);
        addresses_.push_back(static_cast<std::byte*>(ops::stand_in(first).data));
    }
    addresses_[kSegments] = reinterpret_cast<std::byte*>(segments_.data());  // planning reads them
    sealed_ = true;
    return base::ok();
}

base::Status Store::allocate() {
    MILLRACE_ASSERT(!allocated_, "allocate() is called once");
    MILLRACE_TRY(seal());
    // One piece: each allocation would be rounded up to what the driver gives out.
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (i == kRing) continue;
        buffers_[i].offset = bytes;
        bytes += align(buffers_[i].bytes(), kBufferAlign);
    }
    auto whole = backend_.allocate(static_cast<std::size_t>(bytes));
    if (!whole.ok()) {
        const Buffer& largest = *std::ranges::max_element(buffers_, {}, &Buffer::bytes);
        return base::Error{fmt::format("{} and the rest need {:.1f} MiB, which {} cannot give; fewer members or a smaller model "
                                       "would fit",
                                       largest.name, static_cast<double>(bytes) / (1 << 20), backend_.description())}
            .because(whole.error());
    }
    memory_.push_back(std::move(whole).value());
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        if (i != kRing) addresses_[i] = memory_.back()->data() + buffers_[i].offset;
    MILLRACE_LET(ring, backend_.allocate_shared(static_cast<std::size_t>(buffers_[kRing].bytes())));
    memory_.push_back(std::move(ring));
    addresses_[kRing] = memory_.back()->data();
    allocated_ = true;
    write(segments(), segments_);
    reset_groups();
    write_states(std::vector<ops::MemberState>(static_cast<std::size_t>(members())));  // zeros would switch dropout off
    return base::ok();
}

void Store::initialize(const std::vector<std::uint64_t>& seeds) {
    MILLRACE_ASSERT(static_cast<int>(seeds.size()) == members(), "one seed per member");
    // The gaps between tensors too: a warm-up with a state of zeros leaves NaN there, and updates would carry it along.
    for (const bool fixed : {false, true}) {
        const View slice = fixed ? arena_view(kFixed, fixed_width_) : parameter_arena(), copy = fixed ? View{} : copy16();
        for (std::size_t member = 0; member < seeds.size(); ++member)
            draw_parts(parameters_, fixed, member, seeds[member], slice.stride_k,
                       [&](std::int64_t begin, std::vector<float>& part) {
                           View to = slice;
                           to.offset += static_cast<std::int64_t>(member) * slice.stride_k + begin;
                           write_stat(to, part);
                           if (copy.present()) write_copies(to.offset, part);
                       });
    }
    reset_groups();
    auto states = read_states();
    for (std::size_t k = 0; k < states.size(); ++k) states[k].seed = seeds[k];
    write_states(states);
}

View Store::tensor_view(BufferId id, const Parameter& p, std::int64_t stride_k) const {
    const DType dtype = buffers_[static_cast<std::size_t>(id)].dtype;
    View v = contiguous_view(id, dtype, options_.members, p.matrices, p.rows, p.cols, stride_k);
    v.offset = p.offset;
    return v;
}

View Store::parameter(ParameterId id) const {
    const Parameter& p = parameters_.at(static_cast<std::size_t>(id));
    return p.fixed ? tensor_view(kFixed, p, fixed_width_) : tensor_view(kParams, p, trainable_width_);
}

View Store::weight(ParameterId id) const {
    const Parameter& p = parameters_.at(static_cast<std::size_t>(id));
    MILLRACE_ASSERT(!p.table, p.names.front() + " is a table");
    return has_copies(options_.precision) && !p.fixed ? tensor_view(kCopy16, p, trainable_width_) : parameter(id);
}

View Store::gradient(ParameterId id) const {
    const Parameter& p = parameters_.at(static_cast<std::size_t>(id));
    MILLRACE_ASSERT(!p.fixed, "parameters of a fixed group have no gradient");
    return tensor_view(kGrads, p, trainable_width_);
}

View Store::parameter_span(ParameterId first, ParameterId last) const {
    const Parameter &begin = parameters_.at(static_cast<std::size_t>(first)),
                    &end = parameters_.at(static_cast<std::size_t>(last));
    MILLRACE_ASSERT(!begin.fixed && !end.fixed && begin.offset <= end.offset, "a span is of trainable parameters in order");
    View v = parameter_arena();
    v.offset = begin.offset;
    v.cols = static_cast<std::int32_t>(end.offset + end.count() - begin.offset);
    return v;
}

View Store::gradient_span(ParameterId first, ParameterId last) const {
    View v = parameter_span(first, last);
    v.buffer = kGrads;
    return v;
}

View Store::arena_view(BufferId id, std::int64_t width) const {
    View v;
    v.buffer = id;
    v.dtype = buffers_[static_cast<std::size_t>(id)].dtype;
    v.k = options_.members;
    v.cols = static_cast<std::int32_t>(width);
    v.stride_k = v.stride_row = width;
    return v;
}

std::int32_t Store::first_copied() const {
    for (const Parameter& p : parameters_)
        if (!p.fixed && !p.table) return static_cast<std::int32_t>(p.offset);
    return static_cast<std::int32_t>(trainable_width_);
}

View Store::ring() const {
    View v = arena_view(kRing, options_.members * static_cast<std::int64_t>(sizeof(ops::MetricsRow)));
    v.k = 1;
    v.rows = static_cast<std::int32_t>(options_.ring_capacity);
    return v;
}

View Store::ring_counter() const {
    View v = arena_view(kCounter, 8);
    v.k = 1;
    return v;
}

std::byte* Store::address(BufferId id) const {
    MILLRACE_ASSERT(static_cast<std::size_t>(id) < addresses_.size(), "buffer of the store before seal()");
    return addresses_[static_cast<std::size_t>(id)];
}

void Store::write(const View& v, const void* host, std::size_t bytes) {
    MILLRACE_ASSERT(allocated_, "buffer of the store before allocate()");
    backend_.upload(address(v.buffer) + v.offset * static_cast<std::int64_t>(tensor::size_of(v.dtype)), host, bytes);
}

void Store::read(const View& v, void* host, std::size_t bytes) {
    MILLRACE_ASSERT(allocated_, "buffer of the store before allocate()");
    backend_.download(host, address(v.buffer) + v.offset * static_cast<std::int64_t>(tensor::size_of(v.dtype)), bytes);
}

void Store::write_stat(const View& v, const std::vector<float>& values) {
    if (v.dtype != DType::f64) return write(v, values);
    write(v, std::vector<double>(values.begin(), values.end()));
}

void Store::read_stat(const View& v, std::vector<float>& values) {
    if (v.dtype != DType::f64) return read(v, values.data(), values.size() * sizeof(float));
    std::vector<double> wide(values.size());
    read(v, wide.data(), wide.size() * sizeof(double));
    std::ranges::transform(wide, values.begin(), [](double value) { return static_cast<float>(value); });
}

void Store::clear(const View& v) {
    if (!v.present()) return;
    const auto size = static_cast<std::int64_t>(tensor::size_of(v.dtype));
    backend_.clear(address(v.buffer) + v.offset * size, static_cast<std::size_t>(v.count() * size));
}

std::vector<ops::MemberState> Store::read_states() {
    std::vector<ops::MemberState> states(static_cast<std::size_t>(members()));
    read(state(), states.data(), states.size() * sizeof(ops::MemberState));
    return states;
}

void Store::write_states(const std::vector<ops::MemberState>& states) {
    MILLRACE_ASSERT(static_cast<int>(states.size()) == members(), "one state per member");
    write(state(), states);
}

View Store::matrix_window(ParameterId id, int matrix, int member, Arena arena) const {
    constexpr Fixed kBuffers[] = {kParams, kGrads, kFirst, kSecond};
    View v = parameter(id);
    if (arena != Arena::value) v.buffer = kBuffers[static_cast<int>(arena)];
    MILLRACE_ASSERT(buffers_[static_cast<std::size_t>(v.buffer)].elements > 0, "the arena was not asked for");
    v.offset += matrix * v.stride_g + member * v.stride_k;
    return v;
}

std::vector<float> Store::read_parameter(ParameterId id, int matrix, int member, Arena arena) {
    const View v = matrix_window(id, matrix, member, arena);
    std::vector<float> values(static_cast<std::size_t>(v.rows) * static_cast<std::size_t>(v.cols));
    read_stat(v, values);
    return values;
}

void Store::write_parameter(ParameterId id, int matrix, int member, const std::vector<float>& values, Arena arena,
                            std::int64_t first) {
    View v = matrix_window(id, matrix, member, arena);
    MILLRACE_ASSERT(first + static_cast<std::int64_t>(values.size()) <= std::int64_t{v.rows} * v.cols, "too many values");
    v.offset += first;
    write_stat(v, values);
}

void Store::refresh_copies() {
    if (!has_copies(options_.precision)) return;
    View arena = parameter_arena();
    const std::int64_t all = buffers_[kParams].elements;
    std::vector<float> part;
    for (; arena.offset < all; arena.offset += static_cast<std::int64_t>(part.size())) {
        part.resize(static_cast<std::size_t>(std::min(kDrawnPart, all - arena.offset)));
        read_stat(arena, part);
        write_copies(arena.offset, part);
    }
}

void Store::write_copies(std::int64_t first, const std::vector<float>& values) {
    View copy = copy16();
    copy.offset = first;
    std::vector<std::uint16_t> narrow(values.size());
    Copies{options_.precision, narrow}.round(values, 0);
    write(copy, narrow);
}

std::int64_t Store::trainable_count() const {
    return sum_of(parameters_, [](const Parameter& p) { return p.fixed ? 0 : p.count(); });
}

std::int64_t Store::bytes(Role role) const {
    return sum_of(buffers_, [role](const Buffer& b) { return b.role == role ? b.bytes() : 0; });
}

std::int64_t Store::allocated_bytes() const {
    return sum_of(memory_, [](const auto& memory) { return static_cast<std::int64_t>(memory->size()); });
}

std::int32_t Store::group_named(std::string_view name) {
    const auto found = std::ranges::find(groups_, name, &ParameterGroup::name);
    const auto id = static_cast<std::int32_t>(found - groups_.begin());
    if (found == groups_.end())
        groups_.push_back(
            {std::string(name), name == kFrozen || name == kRunning || name == kSettings, name == kNoDecay ? 0.0f : 1.0f});
    return id;
}

void Store::set_segments() {
    segments_.clear();
    for (const Parameter& p : parameters_) {
        if (p.fixed) continue;
        for (std::size_t i = 0; i < p.group_ids.size(); ++i) {
            const auto begin = static_cast<std::int32_t>(p.offset + static_cast<std::int64_t>(i) * p.rows * p.cols);
            if (!segments_.empty()) segments_.back().end = begin;
            if (segments_.empty() || segments_.back().group != p.group_ids[i]) segments_.push_back({begin, p.group_ids[i]});
        }
    }
    if (segments_.empty()) segments_.push_back({});
    segments_.back().end = static_cast<std::int32_t>(trainable_width_);
}

void Store::reset_groups() {
    std::vector<ops::GroupState> table;
    for (int member = 0; member < members(); ++member)
        for (const ParameterGroup& group : groups_) table.push_back(initial_state(group));
    write_groups(table);
}

tensor::View Store::segments() const {
    tensor::View v = arena_view(kSegments, 2);
    v.k = 1;
    v.rows = static_cast<std::int32_t>(segments_.size());
    return v;
}

std::vector<ops::GroupState> Store::read_groups() {
    std::vector<ops::GroupState> table(groups_.size() * static_cast<std::size_t>(members()));
    read(group_table(), table.data(), table.size() * sizeof(ops::GroupState));
    return table;
}

void Store::write_groups(const std::vector<ops::GroupState>& table) {
    MILLRACE_ASSERT(table.size() == groups_.size() * static_cast<std::size_t>(members()), "one block per member and group");
    write(group_table(), table);
}

void Store::set_trainable(int member, std::string_view group, bool trainable) {
    const auto found = std::ranges::find(groups_, group, &ParameterGroup::name);
    MILLRACE_ASSERT(found != groups_.end() && !found->fixed, "no group that can be trained: " + std::string(group));
    MILLRACE_ASSERT(member >= 0 && member < members(), "no such member");
    std::vector<ops::GroupState> table = read_groups();
    table[static_cast<std::size_t>(member) * groups_.size() + static_cast<std::size_t>(found - groups_.begin())].trainable =
        trainable ? 1 : 0;
    write_groups(table);
}

}  // namespace millrace::tape
