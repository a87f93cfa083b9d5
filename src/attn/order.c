/* order.c: orders as arithmetic: nothing is stored. */
#include "order.h"

/* Where class c begins among n numbers in so many classes. */
static int64_t class_begin(int64_t n, int64_t classes, int64_t c) { return c * (n / classes) + HD_MIN(c, n % classes); }

static int64_t in_classes(int64_t n, int64_t classes, int64_t place) {
  const int64_t size = n / classes, longer = n % classes * (size + 1); // the first classes have one more
  return place < longer ? place / (size + 1) + place % (size + 1) * classes
                        : n % classes + (place - longer) / size + (place - longer) % size * classes;
}

hd_order hd_order_of(hd_order_kind kind, int64_t step, int64_t width, int64_t queries, int64_t keys) {
  hd_order order = {kind, step, width, queries, keys};
  if (kind == HD_SUMMARY) order.keys = keys / step * width + HD_MAX(keys % step - (step - width), 0);
  return order;
}

int64_t hd_order_query(const hd_order *order, int64_t place) {
  return order->kind == HD_BY_CLASSES ? in_classes(order->queries, order->step, place) : place;
}

int64_t hd_order_key(const hd_order *order, int64_t place) {
  if (order->kind == HD_BY_CLASSES) return in_classes(order->keys, order->step, place);
  if (order->kind == HD_SUMMARY) return place / order->width * order->step + order->step - order->width + place % order->width;
  return place;
}

void hd_order_places(const hd_order *order, int64_t like, int64_t begin, int64_t end, int64_t *from, int64_t *to) {
  const int64_t step = order->step, before = step - order->width, c = like % step;
  if (order->kind == HD_BY_CLASSES) {
    const int64_t first = class_begin(order->keys, step, c);
    *from = first + (begin > c ? (begin - c + step - 1) / step : 0);
    *to = first + (end > c ? (end - c + step - 1) / step : 0);
  } else if (order->kind == HD_SUMMARY) {
    *from = begin / step * order->width + HD_MAX(begin % step - before, 0);
    *to = end / step * order->width + HD_MAX(end % step - before, 0);
  } else {
    *from = begin;
    *to = end;
  }
}

void hd_keys_of(const hd_sweep *pass, int64_t k0, int64_t k1, hd_keys *keys) {
  keys->count = (int)(k1 - k0);
  keys->step = 1;
  keys->key[0] = k0;
  if (!pass || pass->order.kind == HD_IN_PLACE || k0 >= k1) return;
  keys->key[0] = hd_order_key(&pass->order, k0);
  keys->step = keys->count > 1 ? hd_order_key(&pass->order, k0 + 1) - keys->key[0] : 1;
  // Where each key stands alone in its stride, one class from the first to the last has one step.
  if ((pass->order.kind == HD_BY_CLASSES || pass->order.width == 1) && keys->step > 0 &&
      hd_order_key(&pass->order, k1 - 1) - keys->key[0] == (keys->count - 1) * keys->step)
    return;
  bool even = keys->step > 0;
  for (int i = 1; i < keys->count; i++) {
    keys->key[i] = hd_order_key(&pass->order, k0 + i);
    even &= keys->key[i] == keys->key[0] + i * keys->step;
  }
  if (!even) keys->step = 0;
}
