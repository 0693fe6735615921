#include "ops/cuda/forms.h"

#include <algorithm>
#include <string>

namespace millrace::ops::cuda {

const Form* choose_form(const Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : forms) {
        if (form.refuses(c, records) != nullptr) continue;
        if (std::ranges::find(c.forms, std::string(subject) + "=" + form.name) != c.forms.end()) return &form;
        const double time = form.predict(c, records);
        if (best == nullptr || time < least) {
            best = &form;
            least = time;
        }
    }
    return best;
}

KernelResult make_form(Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* form = choose_form(c, subject, forms, records);
    if (form == nullptr) return base::Error{std::string("there is no way to do ") + subject + " here"};
    MILLRACE_LET(made, form->make(c, records));
    made->form = form->name;
    made->predicted = form->predict(c, records);
    for (const Form& other : forms) {
        const char* refusal = other.refuses(c, records);
        made->offers.push_back({other.name, refusal ? refusal : "", refusal ? 0 : other.predict(c, records)});
    }
    return KernelResult(std::move(made));
}

}  // namespace millrace::ops::cuda
