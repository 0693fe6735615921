#pragma once
// A body unrolled over T steps, with its backward pass through time.
//
// The body is called once per step and uses layers as anywhere else; their backward rules run step by step, from the last step to
// the first. The scan owns three things:
//
// - Windows. An activation of the body is a window of rows of one buffer over all steps, and its gradient a window of one buffer
//   over the steps of a chunk. Layers give weight gradients and column sums of one step; those of neighbouring steps, whose
//   operands are adjacent windows, become one record per chunk: each matrix has one product over all rows of the chunk.
// - Chunks. Consecutive steps whose gradients are held at once. A chunk may have a condition (an i32 flag per member): its
//   records are then skipped, forward and backward, when no member's flag is set, and the model's records that carry on unchanged
//   values follow it. Gradients that a skipped chunk would have begun start as zeros.
// - Recompute. What is not kept is computed again in the backward pass, when the first record there reads it: the records that
//   wrote it are appended again. Their other outputs go to scratch memory.
//
// A state is carried from step to step. Layers that update its gradient in place (nn::GruCell) make it *rolling*: one buffer of
// stat for all steps, and products a_i w_i that belong to it wait to be taken by the layer, so that it can sum them in its own
// kernel (Builder::add_product, take_gradient).

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tape/builder.h"

namespace millrace::tape {

struct ScanOptions {
    std::int32_t steps = 1;
    bool recompute_wide = false;    ///< of intermediates (Builder::intermediate) those called wide are not kept
    bool recompute_values = false;  ///< neither intermediates nor activations are kept
    /// First step and the one behind the last, in order, without holes. Empty: one chunk.
    std::vector<std::pair<std::int32_t, std::int32_t>> chunks;
    /// Only chunks with a condition: what the chunk that begins at step t asks, i32 [K,1,1,1]; absent: it is always done. When a
    /// chunk is skipped, so are all later ones, and all states must be rolling.
    std::function<tensor::View(std::int32_t t)> condition;
    /// Appended behind such a chunk for each of its steps: what a skipped step leaves, forward and backward.
    std::function<void(std::int32_t t)> skipped, skipped_backward;
    /// Zeroes these gradients for members that skipped the chunk from `first` on.
    std::function<void(std::int32_t first, const std::vector<tensor::View>& gradients)> clear;
    /// With conditions: the parameters of the body, whose gradients start as zeros.
    ParameterId first_parameter = kNoParameter, last_parameter = kNoParameter;
};

class Scan : public std::enable_shared_from_this<Scan> {
public:
    /// Call through std::make_shared: the backward rule keeps the scan.
    Scan(Builder& builder, ScanOptions options);

    /// Carried from step to step, real [K,1,rows,cols], zeros before the first step.
    class State {
    public:
        [[nodiscard]] Value before(std::int32_t t) const;  ///< as step t finds it; that of step 0 has no gradient
        [[nodiscard]] Value after(std::int32_t t) const { return before(t + 1); }  ///< as step t leaves it
    private:
        friend class Scan;
        tensor::View windows_;  ///< steps + 1 windows; two in turn in evaluation programs
        std::int32_t rows_ = 0;
        bool training_ = false;
    };
    State state(std::int32_t rows, std::int32_t cols, std::string name);

    /// Calls body(t) for every step and registers the backward pass.
    void run(const std::function<void(std::int32_t t)>& body);

private:
    friend class Builder;
    /// The same activation of every step.
    struct Stack {
        std::string name;
        std::int32_t rows = 0, cols = 0;
        tensor::View kept;      ///< over all steps; absent when it is computed again
        tensor::View again;     ///< over the chunk, when it is computed again
        tensor::View gradient;  ///< over the chunk
    };
    /// Which stack a buffer belongs to; `step` is -1 when it holds all steps.
    struct Home {
        Stack* stack = nullptr;
        std::int32_t step = -1;
    };
    /// A buffer whose content is not kept.
    struct Dropped {
        tensor::View view, again;  ///< whole buffers; `again` where its content is in the backward pass
        bool optional = false;     ///< an intermediate: absent in the forward record
        std::vector<std::size_t> producers;
    };
    struct Producer {
        ops::Record record;
        bool repeated = false;
    };

    // What the builder asks while the scan is under way.
    Value activation(std::int32_t rows, std::int32_t cols, const std::string& name, bool needs_gradient);
    void drop(const tensor::View& intermediate) { dropped_[intermediate.buffer] = {intermediate, {}, true, {}}; }
    tensor::View gradient_window(std::int32_t rows, std::int32_t cols, const std::string& name);
    /// The gradient buffer of a local buffer of the body, and what to add to a row of it; absent for other buffers.
    std::pair<tensor::View, std::int64_t> gradient_place(tensor::BufferId buffer);
    void prepare(ops::Record& record);
    void merge_weight_gradient(ops::Record record);
    [[nodiscard]] bool recomputes(bool wide) const { return options_.recompute_values || (wide && options_.recompute_wide); }

    [[nodiscard]] std::string key(const std::string& name) { return name + " #" + std::to_string(occurrences_[name]++); }
    tensor::View again(const tensor::View& view);
    tensor::View place_again(Dropped& dropped);
    tensor::View fresh_like(const tensor::View& view, const char* name);
    void read_again(ops::Record& record);
    void begin_step(std::int32_t t) {
        step_ = t;
        occurrences_.clear();
    }
    void backward();
    void append_weight_gradients();
    void end_skipped_chunk(std::size_t chunk);
    [[nodiscard]] tensor::View condition_of(std::int32_t first) const {
        return options_.condition ? options_.condition(first) : tensor::View{};
    }

    Builder& builder_;
    ScanOptions options_;
    bool backward_ = false;
    std::int32_t step_ = -1, first_ = 0, count_ = 0;  ///< under way: step, chunk
    std::vector<State> states_;
    std::vector<std::vector<std::function<void()>>> rules_;  ///< by step
    std::map<std::string, int> occurrences_;                 ///< of a name in the step under way
    std::map<std::string, Stack> stacks_;                    ///< by key
    std::map<std::string, tensor::View> gradient_stacks_;    ///< by key, of the chunk under way
    std::map<tensor::BufferId, Home> homes_;
    std::map<tensor::BufferId, Dropped> dropped_;
    std::vector<Producer> producers_;
    std::vector<ops::Record> merged_;  ///< weight gradients of the chunk under way
};

}  // namespace millrace::tape
