#pragma once
// Writes a step program: forward records as layers ask for them, backward records by walking the layers' rules in reverse, the
// update.
//
// A value is a view into an activation plus the knowledge whether it gets a gradient. The gradient of an activation is a
// buffer of the same layout; the first writer of a rectangle overwrites it, later writers add.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/op.h"
#include "ops/uses.h"
#include "tape/buffer.h"
#include "tape/rectangle.h"
#include "tape/store.h"

namespace millrace::tape {

struct Value {
    tensor::View view;
    bool needs_gradient = false;

    [[nodiscard]] Value columns(std::int32_t begin, std::int32_t width) const {
        return {view.columns(begin, width), needs_gradient};
    }
    [[nodiscard]] Value row_window(std::int64_t begin, std::int32_t count) const {
        return {view.row_window(begin, count), needs_gradient};
    }
    [[nodiscard]] Value split_columns(std::int32_t groups) const { return {view.split_columns(groups), needs_gradient}; }
};

struct BuildOptions {
    bool training = true;
    bool defer_weight_gradients =
        false;             ///< weight gradients at the end of the backward pass, side by side, for grouped launches
    double share = 1;      ///< this micro-batch's rows over the rows of the whole step
    int memory_level = 0;  ///< 0: as the model is set; more: the model's ways of sparing memory, in order
};

using ops::Section;

/// a w, which belongs to some gradient.
struct Product {
    tensor::View a, w;
    std::string layer;
};

class Scan;

class Builder {
public:
    Builder(Store& store, BuildOptions options);

    [[nodiscard]] Store& store() const { return store_; }
    [[nodiscard]] bool training() const { return options_.training; }
    [[nodiscard]] double share() const { return options_.share; }
    [[nodiscard]] int memory_level() const { return options_.memory_level; }

    /// What the loss of that name divides by in a step that runs in parts: a sum over all of them (ops::loss_total), which goes
    /// into its optional slot. Absent where the whole step is one part.
    void set_loss_total(const std::string& loss, const tensor::View& total) { loss_totals_[loss] = total; }
    [[nodiscard]] tensor::View loss_total(const std::string& loss) const;
    /// Says that what is appended computes with several rows of the batch at once ("batch statistics of layers.0"), so that the
    /// parts of a batch do not add up to the whole.
    void couple_rows(const std::string& what);
    [[nodiscard]] const std::vector<std::string>& row_couplings() const { return row_couplings_; }
    [[nodiscard]] tensor::DType real() const { return real_of(store_.options().precision); }
    [[nodiscard]] tensor::DType stat() const { return stat_of(store_.options().precision); }

    /// A new activation [K,1,rows,cols].
    Value activation(std::int32_t rows, std::int32_t cols, std::string name, bool needs_gradient);
    /// A new buffer without a gradient, [K,groups,rows,cols], contiguous.
    tensor::View buffer(std::int32_t groups, std::int32_t rows, std::int32_t cols, tensor::DType dtype, Role role,
                        std::string name);
    /// What a layer computes beside its output for its backward rule, real [K,groups,rows,cols], to be put into an optional slot
    /// of its forward record. A scan that recomputes leaves that slot out and computes the content again when the rule reads it;
    /// `wide`: several times as much as the output, so that it goes first.
    tensor::View intermediate(std::int32_t groups, std::int32_t rows, std::int32_t cols, std::string name, bool wide = false);
    /// A number that stays the same for this operator in every program built in the same order: part of its random key.
    std::uint32_t next_op_number() { return op_number_++; }

    /// The content stays until the program's end, for a host that reads it then. What lies in the store does so anyway.
    void keep(const tensor::View& view);

    /// The record must obey its operator's rule (ops/check.h). What a record adds to must have been written before in this
    /// program.
    void append(ops::Record record);
    /// What is appended from here on has this condition (ops::Record::condition); an absent view ends it.
    void only_if(const tensor::View& flags) { condition_ = flags; }
    /// Called in reverse order of registration by backward().
    void on_backward(std::function<void()> rule) { rules_.push_back(std::move(rule)); }
    /// The same, with the complete gradient of `value`; only where it has one and something flowed into it.
    void on_gradient(const Value& value, std::function<void(const tensor::View& gradient)> rule);
    /// Weight gradients go through here so that they can be moved behind the chain, or up to the first record that needs the
    /// memory which they read, or what they write.
    void append_weight_gradient(ops::Record record);
    /// Weight gradients of several steps become one: sums over rows are records of their own, and dz stays in the memory of dy.
    [[nodiscard]] bool merges_weight_gradients() const { return scan_ != nullptr; }
    /// Ends the waiting of those given so far: what they read may be used again afterwards.
    void flush_weight_gradients();

    struct Target {
        tensor::View view;
        bool accumulate = false;
    };
    /// Where to write a contribution to the gradient of `value`, and whether to add.
    Target gradient_target(const Value& value);
    /// The complete gradient of `value`, for reading; parts never written are zeros. Absent when nothing flowed into it.
    tensor::View gradient(const Value& value);
    Target parameter_gradient(ParameterId id);
    /// Where a forward pass moves a running statistic by `momentum`, stat [K,G,1,cols]: the statistic itself or, in a step of
    /// several parts, where each part leaves what moves it.
    tensor::View running(ParameterId id, float momentum);
    /// From here on running() gives places in the row [K,1,1,W] that is returned, and notes them. Absent: there are none.
    tensor::View statistics_row();
    struct Moved {
        ParameterId id;
        float momentum;
        std::int64_t offset;  ///< in the row
    };
    [[nodiscard]] const std::vector<Moved>& moved_statistics() const { return moved_; }
    /// Memory of a backward rule that weight gradients read, real [K,1,rows,cols]; a window per step inside a scan.
    tensor::View gradient_window(std::int32_t rows, std::int32_t cols, const std::string& name);
    /// Adds a w to the gradient of `value`, a real [K,G,B,C], w real [K,G,C,In]; nothing when it has none. The product waits
    /// where the gradient rolls.
    void add_product(const Value& value, const tensor::View& a, const tensor::View& w, const std::string& layer);

    /// The gradient of a scan's state becomes one window for all steps, stat, that a layer updates in place.
    void roll_gradient(const Value& state);
    struct Rolling {
        tensor::View view;              ///< absent: nothing reaches the state
        bool begins = false;            ///< the content does not matter yet
        std::vector<Product> products;  ///< to be added, those of the step under way first
    };
    /// What is known of the gradient of a state that rolls; more products than `most` are appended first. Afterwards `view` is
    /// that of the state before the step.
    Rolling take_gradient(const Value& state, std::size_t most);

    /// Runs the rules in reverse and appends deferred weight gradients.
    void backward();

    /// Everything appended since the last call becomes a section that runs `repeat` times. Gradient bookkeeping starts afresh.
    void close_section(int repeat = 1);
    void set_options(BuildOptions options) { options_ = options; }
    void restart_op_numbers() { op_number_ = 1; }

    [[nodiscard]] const std::vector<ops::Record>& records() const { return records_; }
    std::vector<ops::Record> take_records() { return std::move(records_); }
    std::vector<Buffer> take_buffers() { return std::move(buffers_); }
    std::vector<Section> take_sections() { return std::move(sections_); }

private:
    friend class Scan;
    struct Gradient {
        tensor::BufferId buffer = tensor::kNoBuffer;
        std::int64_t shift = 0;  ///< its rows are those of the value plus this
        bool rolling = false;
        Cover written;  ///< contributions asked for so far in this section
        std::vector<Product> waiting;
    };
    tensor::BufferId add_buffer(Buffer buffer);
    void push(ops::Record record);
    void defer_weight_gradient(ops::Record record);
    Gradient& gradient_of(tensor::BufferId activation);
    [[nodiscard]] tensor::View gradient_view(const Gradient& gradient, tensor::View value) const;
    [[nodiscard]] std::int64_t row_width(const tensor::View& view) const;
    [[nodiscard]] bool touched(const Gradient& gradient, const tensor::View& view) const;
    /// Zeroes what was never written of a part of the gradient and counts it as written.
    void complete(Gradient& gradient, const tensor::View& view);
    void forget_gradient(tensor::BufferId activation) { gradients_[static_cast<std::size_t>(activation - kLocalBase)] = {}; }
    Target claim(Gradient& gradient, const tensor::View& view);  ///< counts a part of the gradient as written
    Target claim_rolling(const tensor::View& windows);
    void append_product(const Product& product, const Target& target);
    void settle_gradient(const tensor::View& windows);  ///< appends the products that wait
    const std::vector<Product>& waiting_products(const tensor::View& windows) { return gradient_of(windows.buffer).waiting; }

    Store& store_;
    BuildOptions options_;
    std::uint32_t op_number_ = 1;
    std::vector<ops::Record> records_, deferred_;
    tensor::View condition_;
    Scan* scan_ = nullptr;  ///< the one under way
    std::vector<std::function<void()>> rules_;
    std::vector<Buffer> buffers_;
    std::deque<Gradient> gradients_;             ///< by local buffer index
    std::map<tensor::BufferId, Cover> written_;  ///< what records wrote of local buffers and of the parameter gradients
    std::vector<ParameterId> written_parameters_;
    std::vector<Section> sections_;
    std::map<std::string, tensor::View> loss_totals_;
    tensor::View running_row_;  ///< absent: statistics move at once
    std::vector<Moved> moved_;
    std::vector<std::string> row_couplings_;
};

}  // namespace millrace::tape
