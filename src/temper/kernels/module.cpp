// The native module: each .cpp file of this folder binds its kernels here.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_etl(nb::module_ &m);
void bind_formats(nb::module_ &m);

NB_MODULE(_native, m) {
    m.doc() = "Raw-buffer kernels of Temper.";
    bind_etl(m);
    bind_formats(m);
}
