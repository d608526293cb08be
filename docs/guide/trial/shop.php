<?php
/* Plugin Name: A small shop for WordPress: products are posts, and there are a cart and orders in tables of their own.
   Copy it to wp-content/mu-plugins. `php seed.php` fills the shop. */

add_action('init', function () {
    register_post_type('product', [
        'label' => 'Products', 'public' => true, 'has_archive' => 'shop', 'rewrite' => ['slug' => 'product'],
        'supports' => ['title', 'editor', 'comments'],
    ]);
    $path = parse_url($_SERVER['REQUEST_URI'] ?? '/', PHP_URL_PATH);
    if ($path === '/cart/' || $path === '/order/') {
        $path === '/cart/' ? shop_cart() : shop_order();
        exit;
    }
});

/** Searches find products, too. */
add_action('pre_get_posts', function ($query) {
    if ($query->is_search() && $query->is_main_query()) {
        $query->set('post_type', ['post', 'product']);
    }
});

function shop_visitor() {
    return substr(preg_replace('/[^a-z0-9]/', '', $_COOKIE['shop_session'] ?? 'nobody'), 0, 32);
}

/** Adds the product `add`, and shows the cart in the theme, with the products that others bought with these. */
function shop_cart() {
    global $wpdb;
    if ($add = (int) ($_REQUEST['add'] ?? 0)) {
        $wpdb->insert('shop_cart', ['visitor' => shop_visitor(), 'product' => $add, 'added' => current_time('mysql')]);
    }
    $rows = $wpdb->get_results($wpdb->prepare(
        'SELECT p.ID, p.post_title FROM shop_cart c JOIN wp_posts p ON p.ID = c.product WHERE c.visitor = %s LIMIT 20',
        shop_visitor()));
    $also = $wpdb->get_results($wpdb->prepare(
        'SELECT o.product, COUNT(*) AS times FROM shop_order o WHERE o.visitor IN
           (SELECT visitor FROM shop_order WHERE product IN (SELECT product FROM shop_cart WHERE visitor = %s))
         GROUP BY o.product ORDER BY times DESC LIMIT 5', shop_visitor()));
    get_header();
    echo '<h1>Your cart</h1>';
    foreach (array_merge($rows, $also) as $row) {
        echo '<p>', esc_html($row->post_title ?? get_the_title($row->product)), '</p>';
    }
    get_footer();
}

/** Turns the cart into an order. */
function shop_order() {
    global $wpdb;
    $wpdb->query('START TRANSACTION');
    $wpdb->query($wpdb->prepare(
        'INSERT INTO shop_order (visitor, product, ordered) SELECT visitor, product, NOW() FROM shop_cart WHERE visitor = %s',
        shop_visitor()));
    $wpdb->delete('shop_cart', ['visitor' => shop_visitor()]);
    $wpdb->query('COMMIT');
    get_header();
    echo '<h1>Thank you for your order</h1>';
    get_footer();
}
