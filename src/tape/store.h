#pragma once
// What outlives a program: parameters, gradients, optimizer state, running statistics, member state, data sets and the metrics
// ring. Parameters, gradients and moments are one arena each, member-major: [K][P], padded, so that norm, update and (later)
// all-reduce are single launches and a member is a contiguous slice.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "ops/optimizer/optimizer.h"
#include "tape/buffer.h"

namespace millrace::tape {

/// How a parameter starts. Drawn from the member's seed and the tensor's name, so that adding a parameter elsewhere changes
/// nothing here.
struct Init {
    enum class Kind : std::uint8_t { constant, normal, uniform, orthonormal, blocks };
    Kind kind = Kind::constant;
    double scale = 0;                               ///< the constant, the deviation, the bound, the factor
    std::vector<double> values;                     ///< blocks: constants of equal parts of the tensor
    std::vector<std::vector<double>> members = {};  ///< blocks: the same for each member, instead

    static Init value(double v) { return {Kind::constant, v, {}}; }
    static Init normal(double deviation) { return {Kind::normal, deviation, {}}; }
    static Init uniform(double bound) { return {Kind::uniform, bound, {}}; }  ///< in [-bound, bound)
    static Init orthonormal(double factor = 1) { return {Kind::orthonormal, factor, {}}; }
    static Init blocks(std::vector<double> constants) { return {Kind::blocks, 0, std::move(constants)}; }
    static Init blocks(std::vector<std::vector<double>> each) { return {Kind::blocks, 0, {}, std::move(each)}; }
};

/// A named set of parameters with a learning-rate factor, a decay factor, a trainable flag and a step count of its own in every
/// member (ops::GroupState). A fixed one is never trained: no gradients, no moments, no place in the trained arena.
struct ParameterGroup {
    std::string name;
    bool fixed = false;
    float decay_factor = 1;  ///< at the start of a run
};
constexpr std::string_view kWeights = "weights";    ///< what is declared without a group
constexpr std::string_view kNoDecay = "no_decay";   ///< vectors declared without a group when StoreOptions asks for it
constexpr std::string_view kFrozen = "frozen";      ///< fixed: saved with the weights, never changes
constexpr std::string_view kSettings = "settings";  ///< fixed: a member's values from the recipe; saved, not taken over by --init
constexpr std::string_view kRunning = "running";    ///< fixed: statistics that forward passes keep

/// The group of all matrices of a parameter, or one of each.
struct ParameterGroupNames {
    std::vector<std::string> names;
    ParameterGroupNames() = default;  ///< the usual one
    ParameterGroupNames(std::string_view name) : names{std::string(name)} {}
    ParameterGroupNames(std::vector<std::string> each) : names(std::move(each)) {}
};

/// G equal matrices [rows, cols] with one PyTorch-style name each; vectors have rows = 1 and are saved with one axis.
struct Parameter {
    std::vector<std::string> names;
    std::int32_t matrices = 1, rows = 1, cols = 1;
    bool vector = false;
    bool table = false;                   ///< its rows are looked up, in stat: no product reads it
    std::vector<std::int32_t> group_ids;  ///< of Store::groups(), one per matrix
    bool fixed = false;                   ///< as its groups
    Init init;
    std::vector<std::int32_t> axes = {};  ///< of a row, in files; empty: one
    std::int64_t offset = 0;              ///< elements into a member's slice of its arena
    [[nodiscard]] std::int64_t count() const { return std::int64_t{matrices} * rows * cols; }
};
using ParameterId = std::int32_t;
constexpr ParameterId kNoParameter = -1;

struct StoreOptions {
    int members = 1;
    Precision precision = Precision::f32;
    bool first_moment = true, second_moment = true;  ///< arenas the optimizer needs
    bool decay_vectors = true;                       ///< false: vectors declared without a group are of kNoDecay
    std::uint32_t ring_capacity = 1024;              ///< rows of the metrics ring
};

class Store {
public:
    Store(ops::Backend& backend, StoreOptions options);

    // Declaring: before allocate(). An unknown name of a group makes one. Matrices of different groups have a multiple of four
    // elements.
    ParameterId add_matrix(std::vector<std::string> names, std::int32_t rows, std::int32_t cols, Init init,
                           const ParameterGroupNames& groups = {}, std::vector<std::int32_t> axes = {});
    /// A matrix without weight().
    ParameterId add_table(std::vector<std::string> names, std::int32_t rows, std::int32_t cols, Init init);
    ParameterId add_vector(std::vector<std::string> names, std::int32_t cols, Init init, ParameterGroupNames groups = {});
    /// A buffer for a data set, [1,1,rows,cols]; filled with write().
    tensor::View add_data(std::string name, tensor::DType dtype, std::int32_t rows, std::int32_t cols);

    /// Ends the declarations: bytes() and the strides of views are final, and programs can be planned.
    base::Status seal();
    /// Seals if need be and allocates everything declared; states are MemberState{}. Fails with the bytes asked for when it does
    /// not fit.
    base::Status allocate();
    /// Draws the initial parameters of every member from its seed and sets the group table as declared, no step applied.
    void initialize(const std::vector<std::uint64_t>& seeds);

    // Views, valid from the declaration on (strides are final after seal()).
    [[nodiscard]] tensor::View parameter(ParameterId id) const;  ///< stat, for norms, biases and the optimizer
    [[nodiscard]] tensor::View weight(ParameterId id) const;     ///< real, for matrix products; fixed ones as parameter()
    [[nodiscard]] tensor::View gradient(ParameterId id) const;   ///< stat
    /// Parameters `first` to `last`, declared one after the other, as one row [K,1,1,P] of stat; parameter i begins at
    /// parameters()[i].offset - parameters()[first].offset.
    [[nodiscard]] tensor::View parameter_span(ParameterId first, ParameterId last) const;
    [[nodiscard]] tensor::View gradient_span(ParameterId first, ParameterId last) const;
    [[nodiscard]] tensor::View state() const { return arena_view(kState, sizeof(ops::MemberState)); }
    /// u8 [K,1,1,G * sizeof(GroupState)]
    [[nodiscard]] tensor::View group_table() const {
        return arena_view(kGroups, std::ssize(groups_) * std::int64_t{sizeof(ops::GroupState)});
    }
    [[nodiscard]] tensor::View segments() const;  ///< i32 [1,1,S,2]: the groups of the trained arena
    [[nodiscard]] tensor::View parameter_arena() const { return arena_view(kParams, trainable_width_); }
    [[nodiscard]] tensor::View gradient_arena() const { return arena_view(kGrads, trainable_width_); }
    // Absent when not asked for; the copy unless has_copies(precision).
    [[nodiscard]] tensor::View first_moment() const { return arena_if(options_.first_moment, kFirst); }
    [[nodiscard]] tensor::View second_moment() const { return arena_if(options_.second_moment, kSecond); }
    [[nodiscard]] tensor::View copy16() const { return arena_if(has_copies(options_.precision), kCopy16); }
    /// The element of an arena from which on updates keep copy16 up to date: tables that were declared first have no copies.
    [[nodiscard]] std::int32_t first_copied() const;
    [[nodiscard]] tensor::View norm_scratch() const { return arena_view(kScratch, ops::kNormBlocks); }
    [[nodiscard]] tensor::View ring() const;
    [[nodiscard]] tensor::View ring_counter() const;

    // Host access: each call waits for the device.
    void write(const tensor::View& contiguous, const void* host, std::size_t bytes);
    void read(const tensor::View& contiguous, void* host, std::size_t bytes);
    /// All of `values`, elements of the view's type.
    template <class T>
    void write(const tensor::View& contiguous, const std::vector<T>& values) {
        write(contiguous, values.data(), values.size() * sizeof(T));
    }
    /// As many elements of a view of stat, which is f32 or f64, as there are values.
    void write_stat(const tensor::View& contiguous, const std::vector<float>& values);
    void read_stat(const tensor::View& contiguous, std::vector<float>& values);
    void clear(const tensor::View& contiguous);  ///< zeros, without waiting; nothing where the view is absent
    std::vector<ops::MemberState> read_states();
    void write_states(const std::vector<ops::MemberState>& states);
    /// The group table [K][G], in the order of groups(). A step that was captured before obeys what is written.
    std::vector<ops::GroupState> read_groups();
    void write_groups(const std::vector<ops::GroupState>& table);
    /// Freezes or unfreezes a group of one member from the next step on. The group must exist and not be fixed.
    void set_trainable(int member, std::string_view group, bool trainable);
    /// One matrix of a parameter (or of a tensor shaped like it in another arena) of one member, as float.
    enum class Arena : std::uint8_t { value, gradient, first_moment, second_moment };
    std::vector<float> read_parameter(ParameterId id, int matrix, int member, Arena arena = Arena::value);
    /// As many elements as there are values, from number `first` on.
    void write_parameter(ParameterId id, int matrix, int member, const std::vector<float>& values, Arena arena = Arena::value,
                         std::int64_t first = 0);
    /// Brings copy16 up to date after parameters were written by the host.
    void refresh_copies();
    /// The ring as the host sees it: [capacity][K] rows.
    [[nodiscard]] const ops::MetricsRow* ring_rows() const { return reinterpret_cast<const ops::MetricsRow*>(address(kRing)); }

    [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }
    [[nodiscard]] std::int64_t trainable_count() const;  ///< of one member, fixed groups left out
    [[nodiscard]] int members() const { return options_.members; }
    [[nodiscard]] const StoreOptions& options() const { return options_; }
    [[nodiscard]] ops::Backend& backend() const { return backend_; }
    [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
    /// Before allocate() it stands for one (ops/uses.h), but that of segments() is the host's copy of them.
    [[nodiscard]] std::byte* address(tensor::BufferId id) const;
    [[nodiscard]] std::int64_t bytes(Role role) const;
    [[nodiscard]] std::int64_t allocated_bytes() const;  ///< what the backend was asked for

private:
    enum Fixed : tensor::BufferId {
        kParams,
        kGrads,
        kFirst,
        kSecond,
        kCopy16,
        kFixed,
        kState,
        kGroups,
        kSegments,
        kScratch,
        kRing,
        kCounter,
        kFixedCount
    };
    std::int32_t group_named(std::string_view name);
    void set_segments();  ///< of the trained arena, once all parameters are declared
    void reset_groups();  ///< the table as declared
    /// Rounds values of the trained arena from element `first` on into copy16.
    void write_copies(std::int64_t first, const std::vector<float>& values);
    tensor::View arena_view(tensor::BufferId id, std::int64_t width) const;
    tensor::View arena_if(bool asked, Fixed id) const { return asked ? arena_view(id, trainable_width_) : tensor::View{}; }
    tensor::View tensor_view(tensor::BufferId id, const Parameter& p, std::int64_t stride_k) const;
    [[nodiscard]] tensor::View matrix_window(ParameterId id, int matrix, int member, Arena arena) const;
    void describe_buffers();  ///< the fixed ones, by what is declared so far

    ops::Backend& backend_;
    StoreOptions options_;
    std::vector<ParameterGroup> groups_{{std::string(kWeights)}};
    std::vector<ops::Segment> segments_;
    std::vector<Parameter> parameters_;
    std::vector<Buffer> buffers_;
    std::vector<std::unique_ptr<ops::Memory>> memory_;
    std::vector<std::byte*> addresses_;  ///< of the buffers
    bool sealed_ = false, allocated_ = false;
    std::int64_t trainable_width_ = 0, fixed_width_ = 0;  ///< elements per member of the two arenas, padded
};

}  // namespace millrace::tape
